//! The compatibility matrix.

use plotters::style::RGBColor;

use super::canvas::{Canvas, Side, Words, colour};
use super::{Area, Panel};
use crate::report::chart::{Cell, Level};

/// As on the page, in its light form.
const LEVELS: [(Level, &str, &str); 6] = [
    (Level::Verified, "right outputs", "#b7dfcd"),
    (Level::Runs, "runs, no reference", "#cfe3f5"),
    (Level::Unavailable, "not here", "#eef0f2"),
    (Level::Unsupported, "not supported", "#d9dde2"),
    (Level::Failed, "failed", "#fbd9a8"),
    (Level::WrongOutput, "wrong output", "#f2a6a0"),
];

pub fn panels<'a>(rows: &'a [String], columns: &'a [String], cells: &'a [Cell]) -> Vec<Panel<'a>> {
    vec![Panel {
        title: String::new(),
        height: 46.0 + 28.0 * rows.len() as f64,
        draw: Box::new(move |canvas, area| draw(canvas, area, rows, columns, cells)),
    }]
}

/// The levels that there are.
pub fn legend(cells: &[Cell]) -> Vec<(String, RGBColor)> {
    let is_there = |level: Level| cells.iter().any(|cell| cell.level == level);
    let there = LEVELS.into_iter().filter(|(level, ..)| is_there(*level));
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
        let hex = LEVELS.iter().find(|(level, ..)| *level == cell.level).map_or("", |(.., hex)| hex);
        canvas.rectangle((left + 2.0, top), (left + width - 2.0, top + 26.0), colour(hex))?;
        canvas.text(&cell.text, (left + width / 2.0, top + 13.0), Words::LABEL.on(Side::Centre))?;
    }
    Ok(())
}
