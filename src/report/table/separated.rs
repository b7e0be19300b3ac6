//! A table as CSV or TSV: its header and its rows, without marks and footnotes.

use super::Table;

impl Table {
    /// The table with this delimiter, quoted where a cell needs it (RFC 4180).
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
}

#[cfg(test)]
mod tests {
    use super::super::{Column, Table};

    #[test]
    fn cells_are_quoted_where_they_need_it() {
        let mut table = Table::new([Column::text("a"), Column::number("b")]);
        table.row(["x,\"y\"\nz"]);
        assert_eq!(table.separated(b','), "a,b\n\"x,\"\"y\"\"\nz\",\n");
        assert_eq!(table.separated(b'\t'), "a\tb\n\"x,\"\"y\"\"\nz\"\t\n");
    }
}
