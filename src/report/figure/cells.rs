//! The compatibility matrix.

use plotters::style::RGBColor;

use super::canvas::{Canvas, Side, Words, colour};
use super::{Area, Panel};
use crate::report::chart::{Cell, Standing};

/// As on the page, in its light form.
const STANDINGS: [(Standing, &str, &str); 6] = [
    (Standing::Verified, "right outputs", "#b7dfcd"),
    (Standing::Runs, "runs, no reference", "#cfe3f5"),
    (Standing::Unavailable, "not here", "#eef0f2"),
    (Standing::Unsupported, "not supported", "#d9dde2"),
    (Standing::Failed, "failed", "#fbd9a8"),
    (Standing::WrongOutput, "wrong output", "#f2a6a0"),
];

pub fn panels<'a>(rows: &'a [String], columns: &'a [String], cells: &'a [Cell]) -> Vec<Panel<'a>> {
    vec![Panel {
        title: String::new(),
        height: 46.0 + 28.0 * rows.len() as f64,
        draw: Box::new(move |canvas, area| draw(canvas, area, rows, columns, cells)),
    }]
}

/// The standings that there are.
pub fn legend(cells: &[Cell]) -> Vec<(String, RGBColor)> {
    let is_there = |standing: Standing| cells.iter().any(|cell| cell.standing == standing);
    let there = STANDINGS.into_iter().filter(|(standing, ..)| is_there(*standing));
    there.map(|(_, name, hex)| (name.to_owned(), colour(hex))).collect()
}

fn draw(canvas: &Canvas<'_>, area: Area, rows: &[String], columns: &[String], cells: &[Cell]) -> Result<(), String> {
    let longest = rows.iter().map(|row| Words::LABEL.width(row)).fold(0.0, f64::max);
    let left = area.left + longest + 12.0;
    let width = ((area.left + area.width - left) / columns.len() as f64).min(240.0);
    let x = |column: usize| left + width * column as f64;
    let y = |row: usize| area.top + 22.0 + 28.0 * row as f64;
    for (index, name) in columns.iter().enumerate() {
        canvas.text(name, (x(index) + width / 2.0, area.top + 8.0), Words::LABEL.on(Side::Centre))?;
    }
    for (index, name) in rows.iter().enumerate() {
        canvas.text(name, (left - 8.0, y(index) + 13.0), Words::LABEL.on(Side::Left))?;
    }
    for cell in cells {
        let (left, top) = (x(cell.column), y(cell.row));
        let hex = STANDINGS.iter().find(|(standing, ..)| *standing == cell.standing).map_or("", |(.., hex)| hex);
        canvas.rectangle((left + 2.0, top), (left + width - 2.0, top + 26.0), colour(hex))?;
        canvas.text(&cell.text, (left + width / 2.0, top + 13.0), Words::LABEL.on(Side::Centre))?;
    }
    Ok(())
}
