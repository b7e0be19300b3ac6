//! The data of each chart, once for all outputs: the page's program draws it in a browser and for `--charts`.
//!
//! Each value names the case that it is of, so that the page can filter the values without knowing more.

mod batch;
mod compatibility;
mod distribution;
mod family;
mod hardware;
mod pareto;
mod trend;

pub use trend::{Change, Step};

use serde::Serialize;

use super::selection::{Measured, Shown};

/// One chart: its words, and what is drawn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chart {
    /// For links and file names.
    pub id: &'static str,
    pub title: &'static str,
    /// How it is to be read, in a sentence or two.
    pub caption: String,
    /// The labels of the axes, with units.
    pub x: &'static str,
    pub y: &'static str,
    /// Whether the values that are read on the y axis are spread logarithmically.
    pub is_log: bool,
    pub plot: Plot,
    /// Why there is nothing to draw, and what would give it.
    pub absent: Option<String>,
}

/// The values of a chart. A `case` is an index into the payload's cases, a `panel` is one into the panels.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Plot {
    /// A line per series over batch sizes; bars if a panel has only one batch size.
    Batches { panels: Vec<String>, points: Vec<BatchPoint> },
    /// Rows with a dot per series.
    Dots { panels: Vec<String>, rows: Vec<String>, reference: Option<f64>, points: Vec<Dot> },
    /// Latency over the fraction of the calls, with percentiles and their bounds.
    Distributions { panels: Vec<String>, curves: Vec<Curve> },
    /// A cloud of points, whose front the page finds: no other point is better in both values.
    Front { y_is_better: Better, panels: Vec<String>, points: Vec<FrontPoint> },
    /// Runs from left to right.
    Trend { panels: Vec<String>, runs: Vec<String>, points: Vec<TrendPoint> },
    /// A heat map.
    Cells { rows: Vec<String>, columns: Vec<String>, cells: Vec<Cell> },
}

/// Which end of an axis is the good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    Lower,
    Higher,
}

/// A value at a batch size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BatchPoint {
    pub case: usize,
    pub panel: usize,
    pub batch_size: usize,
    pub value: f64,
    /// The ends of the whisker.
    pub low: Option<f64>,
    pub high: Option<f64>,
}

/// A value in a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dot {
    pub case: usize,
    pub panel: usize,
    pub row: usize,
    /// What has a colour of its own.
    pub series: String,
    /// The geometric mean of a row's and series' values is drawn.
    pub value: f64,
}

/// The distribution of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    pub case: usize,
    pub panel: usize,
    /// Pairs of a fraction of the calls and milliseconds.
    pub quantiles: Vec<(f64, f64)>,
    /// Percentile, its value, and its upper bound in milliseconds.
    pub bounds: Vec<(f64, f64, Option<f64>)>,
}

/// A point of a cloud.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrontPoint {
    pub case: usize,
    pub panel: usize,
    pub x: f64,
    pub y: f64,
    pub label: String,
}

/// The value of a case in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrendPoint {
    pub case: usize,
    pub panel: usize,
    /// An index into the runs.
    pub run: usize,
    pub value: f64,
    pub change: Option<Change>,
}

/// A cell of a heat map.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// All cases that the cell sums up.
    pub cases: Vec<usize>,
    pub row: usize,
    pub column: usize,
    /// What its colour says: the level, or the status if no case is right.
    pub kind: String,
    /// What is written into it.
    pub text: String,
    /// Why it is so.
    pub reason: String,
}

/// All charts, in the order in which they are read.
pub fn charts(shown: &Shown<'_>, steps: &[Step]) -> Vec<Chart> {
    vec![
        batch::latency(shown),
        batch::throughput(shown),
        batch::memory(shown),
        distribution::chart(shown),
        family::chart(shown),
        hardware::chart(shown),
        pareto::size(shown),
        pareto::accuracy(shown),
        trend::chart(shown, steps),
        compatibility::chart(shown),
    ]
}

/// The value with four significant digits: a drawing needs no more, and a page with thousands of values stays small.
fn drawn(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

/// A value that a logarithmic axis can show.
fn positive(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite() && *value > 0.0).map(drawn)
}

/// `resnet50 · batch 8`.
fn panel_with_batch(case: &Measured<'_>) -> String {
    format!("{} · batch {}", case.group, case.record.batch_size)
}

fn why_nothing_ran() -> String {
    "No case was measured; the compatibility matrix below says why, `inferbench devices` says what would add more."
        .into()
}
