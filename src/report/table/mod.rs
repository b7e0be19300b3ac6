//! The one table of all outputs: columns, rows, marks and footnotes, printed for a terminal, as Markdown, HTML, CSV or TSV.
//!
//! A caller fills a [`Table`] with plain text; each output escapes that text by itself.

mod printing;
mod width;

pub use width::{fit_to_terminal, left_out, wrapped};

/// A table with footnotes below.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
    /// Each with the term that it defines, or with an empty text.
    footnotes: Vec<(String, &'static str)>,
    is_whole: bool,
}

/// The mark of the row to look at first.
pub const BEST: &str = "●";

/// The header of a column, and how its cells look.
#[derive(Clone, Debug)]
pub struct Column {
    header: String,
    kind: Kind,
    weight: Weight,
}

/// What happens to a column if the terminal is too narrow for all of them. Columns of the first kinds go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// Its texts are printed below the table.
    Below,
    /// It is left out.
    Minor,
    /// It is left out if leaving out all minor columns is not enough.
    Usual,
    /// It stays, and its texts are broken into lines.
    Essential,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Aligned to the left.
    Text,
    /// Aligned to the right.
    Number,
    /// Text that a reader copies, such as the id of a case.
    Code,
}

/// The cells of a row, and its mark.
#[derive(Clone, Debug, Default)]
pub struct Row {
    mark: &'static str,
    cells: Vec<Cell>,
    sentence: Option<String>,
}

/// The text of a cell, with an optional quieter detail after it.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    detail: Option<String>,
    link: Option<String>,
    is_strong: bool,
}

impl Table {
    /// An empty table with these columns, of which the first is always shown.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        let mut columns: Vec<Column> = columns.into_iter().collect();
        if let Some(first) = columns.first_mut() {
            first.weight = Weight::Essential;
        }
        Table { columns, ..Table::default() }
    }

    /// The same table; if `is_whole`, it shows all of its columns at any width.
    pub fn whole(self, is_whole: bool) -> Self {
        Table { is_whole, ..self }
    }

    /// The same table, in which the columns with these headers are always shown.
    pub fn essential(self, headers: &[&str]) -> Self {
        self.with_weight(headers, Weight::Essential)
    }

    /// The same table, in which the columns with these headers are left out before others where a terminal is too narrow.
    pub fn minor(self, headers: &[&str]) -> Self {
        self.with_weight(headers, Weight::Minor)
    }

    /// The same table, in which the texts of the columns with these headers are printed below where a terminal is too narrow.
    pub fn or_below(self, headers: &[&str]) -> Self {
        self.with_weight(headers, Weight::Below)
    }

    fn with_weight(mut self, headers: &[&str], weight: Weight) -> Self {
        for column in self.columns.iter_mut().filter(|column| headers.contains(&column.header.as_str())) {
            column.weight = weight;
        }
        self
    }

    /// Adds a row. Missing cells at its end are empty.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) -> &mut Row {
        let mut cells: Vec<Cell> = cells.into_iter().map(Into::into).collect();
        cells.resize_with(self.columns.len(), Cell::default);
        self.rows.push(Row { cells, ..Row::default() });
        let last = self.rows.len() - 1;
        &mut self.rows[last]
    }

    /// Adds a line below the table.
    pub fn footnote(&mut self, text: impl Into<String>) {
        self.footnotes.push((text.into(), ""));
    }

    /// Adds a line below the table about a term. It is printed only if the header of a shown column begins with the term.
    pub fn definition(&mut self, term: &'static str, meaning: &str) {
        if self.columns.iter().any(|column| column.header.starts_with(term)) {
            self.footnotes.push((format!("{term}: {meaning}"), term));
        }
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl Column {
    /// A column of words.
    pub fn text(header: impl Into<String>) -> Self {
        Column { header: header.into(), kind: Kind::Text, weight: Weight::Usual }
    }

    /// A column of numbers, which are aligned to the right.
    pub fn number(header: impl Into<String>) -> Self {
        Column { header: header.into(), kind: Kind::Number, weight: Weight::Usual }
    }

    /// A column of texts that a reader copies, such as ids: code in Markdown and HTML.
    pub fn code(header: impl Into<String>) -> Self {
        Column { header: header.into(), kind: Kind::Code, weight: Weight::Usual }
    }

    /// A column of numbers or of words.
    pub fn of(header: impl Into<String>, is_number: bool) -> Self {
        if is_number { Column::number(header) } else { Column::text(header) }
    }

    /// The same column, which is always shown.
    pub fn essential(self) -> Self {
        Column { weight: Weight::Essential, ..self }
    }

    /// The same column, which is left out before others where a terminal is too narrow.
    pub fn minor(self) -> Self {
        Column { weight: Weight::Minor, ..self }
    }

    /// The same column of long texts, which are printed below the table where a terminal is too narrow.
    pub fn or_below(self) -> Self {
        Column { weight: Weight::Below, ..self }
    }
}

impl Row {
    /// Says in a sentence what the row shows: below the table, and as a tooltip where the output is HTML.
    pub fn sentence(&mut self, sentence: impl Into<String>) -> &mut Self {
        self.sentence = Some(sentence.into());
        self
    }

    /// Puts a mark in front of the row; a footnote explains it. A row with [`BEST`] is in bold where the output is HTML.
    pub fn mark(&mut self, mark: &'static str) {
        self.mark = mark;
    }
}

impl Cell {
    /// The same cell with a quieter detail after its text.
    pub fn detail(self, detail: impl Into<String>) -> Self {
        Cell { detail: Some(detail.into()), ..self }
    }

    /// The same cell as a link to a file or page where the output is HTML.
    pub fn link(self, address: impl Into<String>) -> Self {
        Cell { link: Some(address.into()), ..self }
    }

    /// The same cell in bold where the output is Markdown or HTML.
    pub fn strong(self) -> Self {
        Cell { is_strong: true, ..self }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell { text, ..Cell::default() }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Option<String>> for Cell {
    fn from(text: Option<String>) -> Self {
        text.unwrap_or_default().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rows with everything that a table can have.
    pub fn example() -> Table {
        let mut table = Table::new([Column::code("case"), Column::number("p50 (ms)"), Column::text("note")]);
        table.row([Cell::from("a/1"), Cell::from("1.25").detail("0.5 ×").strong(), Cell::from("<b>")]).mark("●");
        table.row(["b|1", "2.5"]);
        table.footnote("● fastest | first");
        table
    }

    #[test]
    fn every_output_has_the_same_rows() {
        let table = example();
        for text in [table.terminal(), table.markdown(), table.html(), table.separated(b',')] {
            for part in ["a/1", "1.25", "2.5", "note"] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
    }
}
