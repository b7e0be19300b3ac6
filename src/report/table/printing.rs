//! A table in print: for a terminal, as Markdown, as HTML with the classes of the pages' style sheet, and as CSV or TSV.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, TableStyle};

use super::width::{self, wrapped_within};
use super::{BEST, Cell, Column, Kind, Row, Table, Weight};
use crate::report::escape;

impl Table {
    /// The table for a terminal, ending with a line break: with a line below the header, and no others. Where the terminal is too narrow,
    /// columns are left out or printed below.
    pub fn terminal(&self) -> String {
        self.terminal_within(width::limit())
    }

    fn terminal_within(&self, limit: usize) -> String {
        let (columns, rows) = self.with_marks();
        let texts: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(terminal_cell).collect()).collect();
        let of_rows = if self.is_whole { usize::MAX } else { limit };
        let Fitted { shown, below, left_out } = fitted(&columns, &texts, of_rows);
        width::note_left_out(left_out.into_iter().map(|index| columns[index].header.clone()));
        let mut printed = grid(&columns, &texts, &shown);
        if of_rows < usize::from(u16::MAX) {
            // Texts of essential columns are broken into lines.
            printed.set_content_arrangement(ContentArrangement::Dynamic).set_width(of_rows as u16);
            keep_ids_whole(&mut printed, &columns, &shown, of_rows);
        }
        let mut text = format!("{printed}\n");
        for row in &texts {
            let is_name = |index: &&usize| {
                let Column { header, kind, weight } = &columns[**index];
                *weight == Weight::Essential && *kind != Kind::Number && !header.is_empty() && !row[**index].is_empty()
            };
            let name: Vec<&str> = shown.iter().filter(is_name).map(|index| row[*index].as_str()).collect();
            for index in below.iter().filter(|index| !row[**index].is_empty()) {
                let header = if below.len() > 1 { format!("{}: ", columns[*index].header) } else { String::new() };
                text += &wrapped_within(&format!("{}: {header}{}", name.join(" "), row[*index]), 2, limit);
            }
        }
        let sentences = self.rows.iter().filter_map(|row| row.sentence.as_ref());
        let is_shown = |term: &str| shown.iter().any(|index| columns[*index].header.starts_with(term));
        let footnotes = self.footnotes.iter().filter(|(_, term)| is_shown(term)).map(|(line, _)| line);
        for line in sentences.chain(footnotes) {
            text += &wrapped_within(&escape::terminal(line), 2, limit);
        }
        text
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
        let sentences = self.rows.iter().filter_map(|row| row.sentence.as_ref());
        let lines: Vec<&String> = sentences.chain(self.footnotes.iter().map(|(line, _)| line)).collect();
        if !lines.is_empty() {
            text.push('\n');
        }
        text.extend(lines.into_iter().map(|line| format!("- {}\n", escape::markdown(line))));
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
            let title = row.sentence.as_ref().map(|it| format!(" title=\"{}\"", escape::html(it))).unwrap_or_default();
            body += &format!("<tr{class}{title}>{cells}</tr>\n");
        }
        let notes: String =
            self.footnotes.iter().map(|(line, _)| format!("<li>{}</li>\n", escape::html(line))).collect();
        let list = if notes.is_empty() { notes } else { format!("<ul class=\"quiet\">\n{notes}</ul>\n") };
        format!(
            "<div class=\"scroll\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n{list}",
            head.collect::<String>()
        )
    }

    /// The header and the rows with this delimiter, quoted where a cell needs it (RFC 4180), without marks and footnotes.
    pub fn separated(&self, delimiter: u8) -> String {
        let mut writer = csv::WriterBuilder::new().delimiter(delimiter).flexible(true).from_writer(Vec::new());
        let header: Vec<String> = self.columns.iter().map(|column| column.header.clone()).collect();
        let rows = self.rows.iter().map(|row| row.cells.iter().map(|cell| escape::spreadsheet(&cell.text)).collect());
        for record in std::iter::once(header).chain(rows) {
            // A record of any length can be written to memory.
            let _ = writer.write_record(record);
        }
        writer.into_inner().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The columns and rows with the marks, if there are any, as the first column.
    fn with_marks(&self) -> (Vec<Column>, Vec<Vec<Cell>>) {
        let has_marks = self.rows.iter().any(|row| !row.mark.is_empty());
        let marks = has_marks.then(|| Column::text("").essential());
        let cells = |row: &Row| has_marks.then(|| row.mark.into()).into_iter().chain(row.cells.clone()).collect();
        (marks.into_iter().chain(self.columns.clone()).collect(), self.rows.iter().map(cells).collect())
    }
}

/// A space on each side of a column, and one between columns.
const PADDING: usize = 3;

/// Columns by their places.
struct Fitted {
    shown: Vec<usize>,
    below: Vec<usize>,
    left_out: Vec<usize>,
}

/// The columns that fit into the limit. Of columns with equal weight, those on the right go first.
fn fitted(columns: &[Column], texts: &[Vec<String>], limit: usize) -> Fitted {
    let all: Vec<usize> = (0..columns.len()).collect();
    let widths: Vec<usize> =
        grid(columns, texts, &all).column_max_content_widths().into_iter().map(usize::from).collect();
    let mut fitted = Fitted { shown: all, below: Vec::new(), left_out: Vec::new() };
    while fitted.shown.iter().map(|index| widths[*index] + PADDING).sum::<usize>() > limit.saturating_add(1) {
        let others = fitted.shown.iter().copied().rev().filter(|index| columns[*index].weight != Weight::Essential);
        let Some(next) = others.min_by_key(|index| columns[*index].weight) else { break };
        fitted.shown.retain(|index| *index != next);
        if columns[next].weight == Weight::Below { &mut fitted.below } else { &mut fitted.left_out }.push(next);
    }
    fitted.below.reverse();
    fitted.left_out.sort_unstable();
    fitted
}

/// Breaks only columns of words into lines, and no ids and numbers, if that leaves room for the words.
fn keep_ids_whole(printed: &mut comfy_table::Table, columns: &[Column], shown: &[usize], limit: usize) {
    /// Letters of a line.
    const ROOM: u16 = 12;
    let widths = printed.column_max_content_widths();
    let is_text = |place: usize| columns[shown[place]].kind == Kind::Text;
    let least = |(place, &width): (usize, &u16)| if is_text(place) { width.min(ROOM) } else { width };
    let needed: usize = widths.iter().enumerate().map(|column| usize::from(least(column)) + PADDING).sum();
    if needed <= limit + 1 {
        for (_, column) in printed.column_iter_mut().enumerate().filter(|(place, _)| !is_text(*place)) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
}

/// The texts of some of the columns.
fn grid(columns: &[Column], texts: &[Vec<String>], shown: &[usize]) -> comfy_table::Table {
    let mut printed = comfy_table::Table::new();
    printed.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
    printed.set_header(shown.iter().map(|index| escape::terminal(&columns[*index].header)));
    printed.add_rows(texts.iter().map(|row| shown.iter().map(|index| row[*index].as_str())));
    for (index, printed) in shown.iter().zip(printed.column_iter_mut()) {
        if columns[*index].kind == Kind::Number {
            printed.set_cell_alignment(CellAlignment::Right);
        }
    }
    printed
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
    use super::super::left_out;
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
    fn columns_are_chosen_by_the_width() {
        let columns = [
            Column::code("case"),
            Column::number("p50").essential(),
            Column::number("p99"),
            Column::number("memory").minor(),
            Column::text("why").or_below(),
        ];
        let mut table = Table::new(columns);
        table.row(["m/ort", "1.25 ms", "2.50 ms", "123 MB", "no operator of this name in the library"]).mark(BEST);
        table.footnote("● fastest of its batch size");
        table.definition("memory", "its peak");
        table.definition("energy", "of all");
        let width = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
        let headers = |limit| {
            let text = table.terminal_within(limit);
            let header: Vec<String> = text.lines().next().unwrap().split_whitespace().map(str::to_owned).collect();
            (header, text)
        };
        let (all, text) = headers(usize::MAX);
        assert_eq!(all, ["case", "p50", "p99", "memory", "why"]);
        let natural = width(&text);
        assert_eq!(headers(natural).0, all);
        let (header, text) = headers(natural - 1);
        assert_eq!(header, ["case", "p50", "p99", "memory"]);
        assert!(text.contains("\n  m/ort: no operator of this name in the"), "{text}");
        assert!(text.contains("\n  memory: its peak\n") && !text.contains("energy"), "{text}");
        let (header, text) = headers(35);
        assert_eq!(header, ["case", "p50", "p99"]);
        assert!(text.contains("● fastest") && !text.contains("memory"), "{text}");
        let (header, text) = headers(24);
        assert_eq!(header, ["case", "p50"]);
        assert!(width(&text) <= 24 && text.contains("●") && text.contains("    library"), "{text}");
        assert!(left_out().is_some_and(|line| line.contains("p99") && line.contains("memory")));
        // The lines below a table with all columns are not longer than the others.
        let whole = table.clone().whole(true).terminal_within(24);
        assert!(whole.starts_with(headers(usize::MAX).1.split_once("\n  ●").unwrap().0), "{whole}");
        assert!(whole.ends_with("\n  ● fastest of its batch\n    size\n  memory: its peak\n"), "{whole}");
    }

    #[test]
    fn words_are_broken_into_lines_before_ids() {
        let mut table = Table::new([Column::code("case"), Column::text("verdict").essential()]);
        table.row(["resnet50/ort-cpu-f32/1", "passed p99 ≤ 20.0 ms, TTFT p99 ≤ 200 ms"]);
        let text = table.terminal_within(40);
        assert!(text.contains("resnet50/ort-cpu-f32/1"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
    }

    #[test]
    fn a_sentence_of_a_row_is_below_the_table_or_its_tooltip() {
        let mut table = Table::new([Column::text("model"), Column::text("deploy")]);
        table.row(["m", "ort"]).sentence("Deploy \"ort\".");
        assert!(table.terminal().ends_with("\n  Deploy \"ort\".\n"), "{}", table.terminal());
        assert!(table.markdown().ends_with("| m | ort |\n\n- Deploy \"ort\".\n"), "{}", table.markdown());
        assert!(table.html().contains("<tr title=\"Deploy &quot;ort&quot;.\"><td>m</td>"), "{}", table.html());
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
