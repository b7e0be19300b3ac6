//! A table in print: for a terminal, as Markdown, as HTML with the classes of the pages' style sheet, and as CSV or TSV.

use comfy_table::{CellAlignment, LineStyle, TableStyle};

use super::{BEST, Cell, Column, Kind, Row, Table};
use crate::report::escape;

impl Table {
    /// The table for a terminal, ending with a line break: with a line below the header, and no others.
    pub fn terminal(&self) -> String {
        let (columns, rows) = self.with_marks();
        let mut printed = comfy_table::Table::new();
        printed.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
        printed.set_header(columns.iter().map(|column| escape::terminal(&column.header)));
        printed.add_rows(rows.iter().map(|row| row.iter().map(terminal_cell)));
        for (column, printed) in columns.iter().zip(printed.column_iter_mut()) {
            if column.kind == Kind::Number {
                printed.set_cell_alignment(CellAlignment::Right);
            }
        }
        let footnotes = self.footnotes.iter().map(|line| format!("  {}\n", escape::terminal(line)));
        [format!("{printed}\n")].into_iter().chain(footnotes).collect()
    }

    /// The table for a README or a pull request, and the footnotes as a list.
    pub fn markdown(&self) -> String {
        let (columns, rows) = self.with_marks();
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let rule = |column: &Column| if column.kind == Kind::Number { "---:" } else { "---" }.to_owned();
        let mut text = line(columns.iter().map(|column| escape::markdown(&column.header)).collect());
        text += &line(columns.iter().map(rule).collect());
        for row in rows {
            text += &line(columns.iter().zip(&row).map(|(column, cell)| markdown_cell(column, cell)).collect());
        }
        if !self.footnotes.is_empty() {
            text.push('\n');
        }
        text.extend(self.footnotes.iter().map(|line| format!("- {}\n", escape::markdown(line))));
        text
    }

    /// A table that scrolls sideways, and the footnotes as a list.
    pub fn html(&self) -> String {
        let (columns, rows) = self.with_marks();
        let head = columns.iter().map(|it| format!("<th{}>{}</th>", class(it), escape::html(&it.header)));
        let mut body = String::new();
        for (row, printed) in self.rows.iter().zip(&rows) {
            let cells: String = columns.iter().zip(printed).map(|(column, cell)| html_cell(column, cell)).collect();
            let class = if row.mark.contains(BEST) { " class=\"best\"" } else { "" };
            body += &format!("<tr{class}>{cells}</tr>\n");
        }
        let notes: String = self.footnotes.iter().map(|line| format!("<li>{}</li>\n", escape::html(line))).collect();
        let list = if notes.is_empty() { notes } else { format!("<ul class=\"quiet\">\n{notes}</ul>\n") };
        format!(
            "<div class=\"scroll\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n{list}",
            head.collect::<String>()
        )
    }

    /// The header and the rows with this delimiter, quoted where a cell needs it (RFC 4180), without marks and footnotes.
    pub fn separated(&self, delimiter: u8) -> String {
        let mut writer = csv::WriterBuilder::new().delimiter(delimiter).flexible(true).from_writer(Vec::new());
        let header: Vec<&str> = self.columns.iter().map(|column| column.header.as_str()).collect();
        let rows = self.rows.iter().map(|row| row.cells.iter().map(|cell| cell.text.as_str()).collect());
        for record in std::iter::once(header).chain(rows) {
            // Memory takes any record of any length.
            let _ = writer.write_record(record);
        }
        writer.into_inner().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The columns and rows with the marks, if there are any, as the first column.
    fn with_marks(&self) -> (Vec<Column>, Vec<Vec<Cell>>) {
        let has_marks = self.rows.iter().any(|row| !row.mark.is_empty());
        let marks = has_marks.then(|| Column::text(""));
        let cells = |row: &Row| has_marks.then(|| row.mark.into()).into_iter().chain(row.cells.clone()).collect();
        (marks.into_iter().chain(self.columns.clone()).collect(), self.rows.iter().map(cells).collect())
    }
}

fn terminal_cell(cell: &Cell) -> String {
    let detail = cell.detail.iter().map(|detail| format!("  {detail}"));
    escape::terminal(&detail.fold(cell.text.clone(), |text, detail| text + &detail))
}

fn markdown_cell(column: &Column, cell: &Cell) -> String {
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

fn html_cell(column: &Column, cell: &Cell) -> String {
    let text = escape::html(&cell.text);
    let text = if column.kind == Kind::Code && !text.is_empty() { format!("<code>{text}</code>") } else { text };
    let text = if cell.is_strong { format!("<strong>{text}</strong>") } else { text };
    let text = match &cell.link {
        Some(address) => format!("<a href=\"{}\">{text}</a>", escape::html(address)),
        None => text,
    };
    let detail = cell.detail.iter().map(|detail| format!(" <span class=\"quiet\">{}</span>", escape::html(detail)));
    format!("<td{}>{text}{}</td>", class(column), detail.collect::<String>())
}

fn class(column: &Column) -> &'static str {
    if column.kind == Kind::Number { " class=\"number\"" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn in_a_terminal_numbers_are_aligned_and_marks_are_in_front() {
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

    #[test]
    fn nothing_in_a_cell_breaks_markdown() {
        let expected = "|  | case | p50 (ms) | note |\n| --- | --- | ---: | --- |\n\
            | ● | `a/1` | **1.25** 0.5 × | &lt;b> |\n|  | `b\\|1` | 2.5 |  |\n\n- ● fastest \\| first\n";
        assert_eq!(example().markdown(), expected);
    }

    #[test]
    fn a_link_of_html_is_escaped() {
        let mut table = Table::new([Column::text("run")]);
        table.row([Cell::from("a").link("\"><script>")]);
        assert!(table.html().contains("<td><a href=\"&quot;&gt;&lt;script&gt;\">a</a></td>"), "{}", table.html());
    }

    #[test]
    fn cells_of_html_are_text_with_classes() {
        let html = example().html();
        let row = "<tr class=\"best\"><td>●</td><td><code>a/1</code></td><td class=\"number\"><strong>1.25</strong> \
            <span class=\"quiet\">0.5 ×</span></td><td>&lt;b&gt;</td></tr>";
        assert!(html.contains(row), "{html}");
        assert!(html.contains("<li>● fastest | first</li>"), "{html}");
    }

    #[test]
    fn separated_cells_are_quoted_where_they_need_it() {
        let mut table = Table::new([Column::text("a"), Column::number("b")]);
        table.row(["x,\"y\"\nz"]);
        assert_eq!(table.separated(b','), "a,b\n\"x,\"\"y\"\"\nz\",\n");
        assert_eq!(table.separated(b'\t'), "a\tb\n\"x,\"\"y\"\"\nz\"\t\n");
    }
}
