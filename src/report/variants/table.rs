//! The table for a terminal.

use comfy_table::{Cell, CellAlignment};

use super::columns::{cells, columns};
use super::wording::{failures, legend, others, title};
use super::{VariantTable, Variants};
use crate::report::ruled_table;

/// A table a phase, sequence length and machine; below it what was not measured, and last what to ship.
pub fn render(variants: &Variants) -> String {
    variants.tables.iter().map(|table| one(table, &variants.tables)).collect()
}

fn one(table: &VariantTable, tables: &[VariantTable]) -> String {
    let columns = columns(table);
    let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
    let mut ruled = ruled_table(&names);
    for row in table.rows.iter().filter(|row| row.is_measured()) {
        ruled.add_row(cells(table, row).into_iter().map(Cell::new));
    }
    for (index, _) in columns.iter().enumerate().filter(|(_, column)| column.is_number) {
        if let Some(column) = ruled.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = format!("\n{}\n{ruled}\n", title(table, tables));
    let mut lines = |lines: Vec<String>, indent: &str| {
        text.extend(lines.iter().map(|line| format!("{indent}{line}\n")));
    };
    lines(failures(table), "  ");
    lines(vec![String::new()], "");
    lines(legend(table), "");
    lines(others(table), "");
    lines(vec![String::new(), table.recommendation.sentence.clone()], "");
    lines(table.recommendation.reasons.clone(), "");
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::super::{Options, compare};
    use super::*;

    #[test]
    fn what_to_ship_is_the_last_that_is_read() {
        let text = render(&compare(&example(), &Options::new("m")).unwrap());
        let line =
            |part: &str| text.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {text}"));
        assert!(text.starts_with("\nm · batch 1\n"), "{text}");
        assert!(line("int8-static").contains("●◇") && line("int8-static").contains("1.25 ms  0.62 ×"), "{text}");
        assert!(line("not 0").contains("pruned"), "{text}");
        assert_eq!(line("distilled"), "  distilled on tch: failed: no operator <Gelu> | a");
        assert!(line("● recommended").contains("◇ on the Pareto front"), "{text}");
        assert!(text.trim_end().lines().last().unwrap().starts_with("Ship int8-static on ort: "), "{text}");
    }
}
