//! A table for a terminal: a line below the header, and no others.

use comfy_table::{CellAlignment, LineStyle, TableStyle};

use super::{Cell, Table};
use crate::report::escape;

impl Table {
    /// The table for a terminal, ending with a line break.
    pub fn terminal(&self) -> String {
        let mut printed = comfy_table::Table::new();
        printed.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
        let marks = self.has_marks();
        let with_mark = |mark: &str| marks.then(|| mark.to_owned());
        printed.set_header(with_mark("").into_iter().chain(self.columns.iter().map(|it| escape::terminal(&it.header))));
        for row in &self.rows {
            printed.add_row(with_mark(row.mark).into_iter().chain(row.cells.iter().map(text)));
        }
        let numbers = self.columns.iter().enumerate().filter(|(_, column)| column.is_number());
        for (index, _) in numbers {
            if let Some(column) = printed.column_mut(index + usize::from(marks)) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let footnotes = self.footnotes.iter().map(|line| format!("  {}\n", escape::terminal(line)));
        [format!("{printed}\n")].into_iter().chain(footnotes).collect()
    }
}

fn text(cell: &Cell) -> String {
    let detail = cell.detail.iter().map(|detail| format!("  {detail}"));
    escape::terminal(&detail.fold(cell.text.clone(), |text, detail| text + &detail))
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;

    #[test]
    fn numbers_are_aligned_and_marks_are_in_front() {
        let text = example().terminal();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("p50 (ms)") && lines[1].trim().chars().all(|c| c == '─'), "{text}");
        assert!(lines[2].contains("● ") && lines[2].contains("1.25  0.5 ×"), "{text}");
        let end_of = |line: &str, part: &str| {
            line.split_once(part).map(|(before, _)| before.chars().count() + part.chars().count())
        };
        assert_eq!(end_of(lines[2], "0.5 ×"), end_of(lines[3], "2.5"), "{text}");
        assert_eq!(lines[4], "  ● fastest | first");
    }
}
