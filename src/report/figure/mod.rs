//! Charts as files for a paper: SVG, and PNG of the same.
//!
//! A figure has a title, a legend, and panels in rows of three, or one wide panel. What is in a panel is drawn by one file a
//! kind of chart.

mod axis;
mod batches;
mod canvas;
mod cells;
mod distributions;
mod dots;
mod front;
mod png;
mod trend;

pub use png::png;

use plotters::style::RGBColor;

use self::canvas::{Canvas, Place, Words, colour};
use super::chart::{Chart, Plot};
use super::colour::PLACES;
use super::payload::Payload;

/// Of a panel, with its title and its axes.
const PANEL: (f64, f64) = (380.0, 250.0);
const WIDE: f64 = 1000.0;
const MARGIN: f64 = 20.0;
const ROW: usize = 3;
/// More fit on no page.
const MOST_PANELS: usize = 36;

/// A part of the sheet.
#[derive(Clone, Copy)]
struct Area {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

/// What a chart needs to be drawn.
struct Figure<'a> {
    chart: &'a Chart,
    payload: &'a Payload,
}

type Drawing<'a> = Box<dyn Fn(&Canvas<'_>, Area) -> Result<(), String> + 'a>;

/// Something that is drawn into a part of the sheet.
struct Panel<'a> {
    title: String,
    height: f64,
    draw: Drawing<'a>,
}

/// The chart as an SVG file.
///
/// # Errors
/// The chart is absent, or cannot be drawn.
pub fn svg(chart: &Chart, payload: &Payload) -> Result<String, String> {
    if let Some(reason) = &chart.absent {
        return Err(format!("no {}: {reason}", chart.id));
    }
    let figure = Figure { chart, payload };
    let (panels, is_wide) = match &chart.plot {
        Plot::Batches { panels, points } => (batches::panels(&figure, panels, points), false),
        Plot::Distributions { panels, curves } => (distributions::panels(&figure, panels, curves), false),
        Plot::Trend { panels, runs, points } => (trend::panels(&figure, panels, runs, points), false),
        Plot::Front { panels, points, .. } => (front::panels(&figure, panels, points), true),
        Plot::Dots { panels, rows, reference, points } => {
            (dots::panels(&figure, panels, rows, *reference, points), panels.len() == 1)
        }
        Plot::Cells { rows, columns, cells } => (cells::panels(rows, columns, cells), true),
    };
    figure.sheet(&panels, is_wide)
}

impl Figure<'_> {
    fn sheet(&self, panels: &[Panel<'_>], is_wide: bool) -> Result<String, String> {
        let in_a_row = if is_wide { 1 } else { ROW.min(panels.len()) };
        let panel_width = if is_wide { WIDE } else { PANEL.0 };
        let height_of = |row: &[Panel<'_>]| row.iter().map(|panel| panel.height).fold(0.0, f64::max);
        let legend = self.legend();
        let left_out = panels.len().saturating_sub(MOST_PANELS);
        let panels = &panels[..panels.len() - left_out];
        let rows: Vec<&[Panel<'_>]> = panels.chunks(in_a_row.max(1)).collect();
        let content = (panel_width * in_a_row as f64).max(Words::TITLE.width(self.chart.title));
        let (legend_places, legend_height) = places_of(&legend, content);
        let head = MARGIN + 26.0 + legend_height + 8.0;
        let height =
            head + rows.iter().map(|row| height_of(row)).sum::<f64>() + MARGIN + if left_out > 0 { 20.0 } else { 0.0 };

        let mut text = String::new();
        let canvas = Canvas::new(&mut text, content + 2.0 * MARGIN, height)?;
        canvas.text(self.chart.title, (MARGIN, MARGIN + 8.0), Words::TITLE)?;
        for ((name, colour), (x, y)) in legend.iter().zip(legend_places) {
            let at = (MARGIN + x, MARGIN + 34.0 + y);
            let middle = (at.0 + 10.0, at.1);
            match self.payload.cases.iter().position(|case| case.series == *name) {
                Some(case) => {
                    self.line(&canvas, case, &[at, (at.0 + 20.0, at.1)])?;
                    self.mark(&canvas, case, middle)?;
                }
                None => canvas.dot(middle, 5, *colour)?,
            }
            canvas.text(name, (at.0 + 27.0, at.1), Words::LABEL)?;
        }
        let mut top = head;
        for row in rows {
            for (index, panel) in row.iter().enumerate() {
                let left = MARGIN + index as f64 * panel_width;
                canvas.text(&panel.title, (left, top + 8.0), Words::PANEL)?;
                let area = Area { left, top: top + 18.0, width: panel_width, height: panel.height - 18.0 };
                (panel.draw)(&canvas, area)?;
            }
            top += height_of(row);
        }
        if left_out > 0 {
            let note = format!("{left_out} more panels are left out; choose with --model, --backend, --batch-sizes");
            canvas.text(&note, (MARGIN, top + 10.0), Words::LABEL.quiet())?;
        }
        canvas.finish()?;
        Ok(text)
    }

    /// Names with their colours, each once.
    fn legend(&self) -> Vec<(String, RGBColor)> {
        let of_cases = |cases: Vec<usize>| cases.into_iter().map(|case| self.series(case).to_owned()).collect();
        let names: Vec<String> = match &self.chart.plot {
            Plot::Batches { points, .. } => of_cases(points.iter().map(|point| point.case).collect()),
            Plot::Distributions { curves, .. } => of_cases(curves.iter().map(|curve| curve.case).collect()),
            Plot::Trend { points, .. } => of_cases(points.iter().map(|point| point.case).collect()),
            Plot::Front { points, .. } => of_cases(points.iter().map(|point| point.case).collect()),
            Plot::Dots { points, .. } => points.iter().map(|point| point.series.clone()).collect(),
            Plot::Cells { cells, .. } => return cells::legend(cells),
        };
        let mut legend: Vec<(String, RGBColor)> = Vec::new();
        for name in names {
            if legend.iter().all(|(known, _)| *known != name) {
                let colour = self.colour_of(&name, legend.len());
                legend.push((name, colour));
            }
        }
        legend
    }

    fn series(&self, case: usize) -> &str {
        self.payload.cases.get(case).map_or("", |case| &case.series)
    }

    fn case_colour(&self, case: usize) -> RGBColor {
        self.colour_of(self.series(case), 0)
    }

    /// Of a series' backend; of what is no series, by its order.
    fn colour_of(&self, series: &str, order: usize) -> RGBColor {
        let backend = self.payload.cases.iter().find(|case| case.series == series).map(|case| &case.backend);
        let found = backend.and_then(|backend| self.payload.colours.get(backend));
        colour(found.map_or(PLACES[order % PLACES.len()].light, |colour| colour.light))
    }

    /// How many series of the same backend were named before this one: they differ by their dashes.
    fn order(&self, case: usize) -> usize {
        let Some(own) = self.payload.cases.get(case) else { return 0 };
        let mut before: Vec<&str> = Vec::new();
        for other in self.payload.cases.iter().filter(|other| other.backend == own.backend) {
            if other.series == own.series {
                break;
            }
            if !before.contains(&other.series.as_str()) {
                before.push(&other.series);
            }
        }
        before.len()
    }

    /// The members of each series, in the order in which they come.
    fn by_series<'v, T>(&self, values: &[&'v T], case: impl Fn(&T) -> usize) -> Vec<Vec<&'v T>> {
        let mut groups: Vec<Vec<&T>> = Vec::new();
        for value in values {
            let series = self.series(case(value));
            match groups.iter_mut().find(|group| self.series(case(group[0])) == series) {
                Some(group) => group.push(value),
                None => groups.push(vec![value]),
            }
        }
        groups
    }

    /// A line in the colour of its case; dashed where a backend has several series.
    fn line(&self, canvas: &Canvas<'_>, case: usize, places: &[Place]) -> Result<(), String> {
        match self.order(case) {
            0 => canvas.line(places, self.case_colour(case), 2.0),
            order => canvas.dashed(places, self.case_colour(case), 9 - 2 * (order as i32).min(3), 2),
        }
    }

    /// A mark in the colour of its case; another shape where a backend has several series.
    fn mark(&self, canvas: &Canvas<'_>, case: usize, at: Place) -> Result<(), String> {
        let colour = self.case_colour(case);
        match self.order(case) {
            0 => canvas.dot(at, 4, colour),
            1 => canvas.rectangle((at.0 - 4.0, at.1 - 4.0), (at.0 + 4.0, at.1 + 4.0), colour),
            2 => canvas.triangle(at, true, colour),
            _ => canvas.ring(at, 4, colour),
        }
    }
}

/// Where the entries of a legend are, row by row, and how high it is.
fn places_of(legend: &[(String, RGBColor)], width: f64) -> (Vec<Place>, f64) {
    let (mut x, mut y) = (0.0, 0.0);
    let mut places = Vec::new();
    for (name, _) in legend {
        let own = 47.0 + Words::LABEL.width(name);
        if x > 0.0 && x + own > width {
            (x, y) = (0.0, y + 18.0);
        }
        places.push((x, y));
        x += own;
    }
    (places, y + if legend.is_empty() { 0.0 } else { 24.0 })
}

/// What is in each panel, without those that are empty.
fn by_panel<'a, T>(names: &[String], values: &'a [T], panel: impl Fn(&T) -> usize) -> Vec<(String, Vec<&'a T>)> {
    let members = |index| values.iter().filter(|value| panel(value) == index).collect::<Vec<_>>();
    let all = names.iter().enumerate().map(|(index, name)| (name.clone(), members(index)));
    all.filter(|(_, members)| !members.is_empty()).collect()
}
