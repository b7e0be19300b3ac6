//! Markdown, for a README or a pull request: what to ship first, then the table.

use super::columns::{cells, columns};
use super::wording::{failures, legend, others, title};
use super::{VariantTable, Variants};

/// A heading, the recommendation and a table a phase, sequence length and machine.
pub fn render(variants: &Variants) -> String {
    variants.tables.iter().map(|table| one(table, &variants.tables)).collect()
}

fn one(table: &VariantTable, tables: &[VariantTable]) -> String {
    let columns = columns(table);
    let mut text = format!("### {}\n\n", escape(&title(table, tables)));
    text.push_str(&format!("**{}**\n\n", escape(&table.recommendation.sentence)));
    for reason in &table.recommendation.reasons {
        text.push_str(&format!("{}\n\n", escape(reason)));
    }
    let names = columns.iter().map(|column| column.name.to_owned());
    let rules = columns.iter().map(|column| if column.is_number { "---:" } else { "---" }.to_owned());
    text.push_str(&row(names));
    text.push_str(&row(rules));
    for measured in table.rows.iter().filter(|row| row.is_measured()) {
        let is_recommended = measured.is_recommended;
        let bold = |(index, cell): (usize, String)| {
            let cell = escape(&cell.replace("  ", " "));
            if is_recommended && index == 1 { format!("**{cell}**") } else { cell }
        };
        text.push_str(&row(cells(table, measured).into_iter().enumerate().map(bold)));
    }
    text.push('\n');
    for line in [failures(table), others(table), legend(table)].concat() {
        text.push_str(&format!("- {}\n", escape(&line)));
    }
    text.push('\n');
    text
}

fn row(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

fn escape(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::super::{Options, compare};
    use super::*;

    #[test]
    fn what_to_ship_comes_first_and_nothing_breaks_the_table() {
        let mut records = example();
        records[4].message = Some("no <operator> | a".into());
        let text = render(&compare(&records, &Options::new("m")).unwrap());
        let (before, after) = text.split_once("| --- |").unwrap();
        assert!(text.starts_with("### m · batch 1\n\n**Ship int8-static on ort: "), "{text}");
        assert!(before.contains("|  | variant | backend |") && !before.contains("pruned on ort would be"), "{text}");
        assert!(
            after.contains("| ●◇ | **int8-static** | ort | cpu | f32 | 1 | 1.25 ms 0.62 × | 3.00 MB 0.29 × |"),
            "{text}"
        );
        assert!(after.contains("- distilled on tch: failed: no &lt;operator> \\| a\n"), "{text}");
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        let bars = |row: &&str| row.replace("\\|", "").matches('|').count();
        assert!(rows.len() == 6 && rows.iter().all(|row| bars(row) == bars(&rows[0])), "{text}");
    }
}
