//! A table as HTML, with the classes of the pages' style sheet.

use super::{BEST, Cell, Column, Kind, Table};
use crate::report::escape;

impl Table {
    /// A table that scrolls sideways, and the footnotes as a list.
    pub fn html(&self) -> String {
        let marks = self.has_marks();
        let mark = |tag: &str, mark: &str| if marks { format!("<{tag}>{mark}</{tag}>") } else { String::new() };
        let header = |column: &Column| format!("<th{}>{}</th>", class(column), escape::html(&column.header));
        let head: String = std::iter::once(mark("th", "")).chain(self.columns.iter().map(header)).collect();
        let mut body = String::new();
        for row in &self.rows {
            let cells: String = self.columns.iter().zip(&row.cells).map(|(column, it)| cell(column, it)).collect();
            let class = if row.mark.contains(BEST) { " class=\"best\"" } else { "" };
            body.push_str(&format!("<tr{class}>{}{cells}</tr>\n", mark("td", row.mark)));
        }
        let notes: String = self.footnotes.iter().map(|line| format!("<li>{}</li>\n", escape::html(line))).collect();
        let list = if notes.is_empty() { notes } else { format!("<ul class=\"quiet\">\n{notes}</ul>\n") };
        format!(
            "<div class=\"scroll\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n{list}"
        )
    }
}

fn class(column: &Column) -> &'static str {
    if column.is_number() { " class=\"number\"" } else { "" }
}

fn cell(column: &Column, cell: &Cell) -> String {
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

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn a_link_is_escaped() {
        let mut table = Table::new([Column::text("run")]);
        table.row([Cell::from("a").link("\"><script>")]);
        assert!(table.html().contains("<td><a href=\"&quot;&gt;&lt;script&gt;\">a</a></td>"), "{}", table.html());
    }

    #[test]
    fn cells_are_text_with_classes() {
        let html = example().html();
        let row = "<tr class=\"best\"><td>●</td><td><code>a/1</code></td><td class=\"number\"><strong>1.25</strong> \
            <span class=\"quiet\">0.5 ×</span></td><td>&lt;b&gt;</td></tr>";
        assert!(html.contains(row), "{html}");
        assert!(html.contains("<li>● fastest | first</li>"), "{html}");
    }
}
