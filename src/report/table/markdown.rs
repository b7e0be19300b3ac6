//! A table as Markdown, for a README or a pull request.

use super::{Cell, Column, Kind, Table};
use crate::report::escape;

impl Table {
    /// The table, and the footnotes as a list.
    pub fn markdown(&self) -> String {
        let marks = self.has_marks();
        let with_mark = |mark: &str| marks.then(|| mark.to_owned());
        let headers = self.columns.iter().map(|column| escape::markdown(&column.header));
        let rules = self.columns.iter().map(|column| if column.is_number() { "---:" } else { "---" }.to_owned());
        let mut text = line(with_mark("").into_iter().chain(headers));
        text.push_str(&line(with_mark("---").into_iter().chain(rules)));
        for row in &self.rows {
            let cells = self.columns.iter().zip(&row.cells).map(|(column, it)| cell(column, it));
            text.push_str(&line(with_mark(row.mark).into_iter().chain(cells)));
        }
        if !self.footnotes.is_empty() {
            text.push('\n');
        }
        text.extend(self.footnotes.iter().map(|line| format!("- {}\n", escape::markdown(line))));
        text
    }
}

fn line(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

fn cell(column: &Column, cell: &Cell) -> String {
    let text = match column.kind {
        _ if cell.text.is_empty() => String::new(),
        Kind::Code => escape::markdown_code(&cell.text),
        _ => escape::markdown(&cell.text),
    };
    let text = if cell.is_strong && !text.is_empty() { format!("**{text}**") } else { text };
    match &cell.detail {
        Some(detail) => format!("{text} {}", escape::markdown(detail)),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;

    #[test]
    fn nothing_in_a_cell_breaks_the_table() {
        let expected = "|  | case | p50 (ms) | note |\n| --- | --- | ---: | --- |\n\
            | ● | `a/1` | **1.25** 0.5 × | &lt;b> |\n|  | `b\\|1` | 2.5 |  |\n\n- ● fastest \\| first\n";
        assert_eq!(example().markdown(), expected);
    }
}
