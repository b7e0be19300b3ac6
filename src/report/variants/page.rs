//! One static HTML page: the recommendation, the table and a picture of quality against latency. It has no program.

use std::collections::BTreeSet;

use anyhow::Result;

use super::output::{table, title};
use super::{Measure, VariantTable, Variants};
use crate::report::chart::{Better, Chart, FrontPoint, Plot};
use crate::report::colour;
use crate::report::drawing::Drawing;
use crate::report::escape::html as escape;
use crate::report::html::{STYLE, fill};
use crate::report::payload::{CaseRow, Payload};

const PAGE: &str = include_str!("../html/variants.html");
const CAPTION: &str = "Quality against the median time of a call. Better is up and to the left; rings are the rows that no \
    other row beats in these two.";

/// The page.
///
/// # Errors
/// A picture cannot be drawn.
pub fn render(variants: &Variants) -> Result<String> {
    let sections = variants.tables.iter().map(|table| section(table, variants)).collect::<Result<Vec<String>>>()?;
    let rows = variants.tables.iter().flat_map(|table| &table.rows);
    let runs: BTreeSet<&str> = rows.flat_map(|row| &row.run_ids).map(String::as_str).collect();
    let runs: Vec<&str> = runs.into_iter().collect();
    let model = variants.tables.first().map_or("", |table| table.model.as_str());
    Ok(fill(
        PAGE,
        &[
            ("model", &escape(model)),
            ("runs", &escape(&runs.join(", "))),
            ("style", STYLE),
            ("colours", &colours()),
            ("sections", &sections.concat()),
        ],
    ))
}

fn section(shown: &VariantTable, variants: &Variants) -> Result<String> {
    let figure = svg(shown)?.map(|svg| format!("<figure>\n{svg}<figcaption>{CAPTION}</figcaption>\n</figure>\n"));
    Ok(format!(
        "<section>\n<h2>{}</h2>\n<p class=\"choice\">{}</p>\n{}{}</section>\n",
        escape(&title(shown, variants)),
        escape(&shown.recommendation.sentence),
        table(shown).html(),
        figure.unwrap_or_default()
    ))
}

/// The Pareto picture with a label per variant. Returns `None` if fewer than two rows have both figures.
fn svg(table: &VariantTable) -> Result<Option<String>> {
    let (title, label, scale) = match table.measure {
        Measure::Accuracy => ("Accuracy against speed", "accuracy (%)", 100.0),
        Measure::Agreement => ("Agreement with the original against speed", "cosine of the outputs", 1.0),
        Measure::Unknown => return Ok(None),
    };
    let mut cases = Vec::new();
    let mut points = Vec::new();
    for row in table.rows.iter().filter(|row| row.is_candidate()) {
        let record = &row.record;
        let latency = record.latency_p50_ms.filter(|ms| *ms > 0.0 && ms.is_finite());
        let Some((x, y)) = latency.zip(table.measure.value(row)) else { continue };
        let label = if row.is_recommended { format!("{} ●", record.variant) } else { record.variant.clone() };
        points.push(FrontPoint { case: cases.len(), panel: 0, x, y: scale * y, label });
        let device = if record.device == "cpu" { String::new() } else { format!(" · {}", record.device) };
        cases.push(CaseRow::new(record, format!("{}{device}", record.backend)));
    }
    if points.len() < 2 {
        return Ok(None);
    }
    let chart = Chart {
        id: "variants",
        title,
        caption: String::new(),
        x: "latency, p50 (ms)",
        y: label,
        is_log: false,
        plot: Plot::Front { y_is_better: Better::Higher, panels: vec![format!("batch {}", table.batch_size)], points },
        absent: None,
    };
    Drawing::new(&Payload::of_chart(chart, cases)).and_then(|drawing| drawing.svg("variants")).map(Some)
}

/// Rules that give the picture, which is drawn for white paper, the page's colours. They are stronger than its attributes.
fn colours() -> String {
    let mut rules = String::new();
    let mut rule = |light: &str, value: &str| {
        for attribute in ["fill", "stroke"] {
            rules.push_str(&format!("figure svg [{attribute}=\"{light}\" i] {{ {attribute}: {value}; }}\n"));
        }
    };
    rule("#ffffff", "var(--card)");
    rule("#1b1f24", "var(--ink)");
    rule("#59636e", "var(--quiet)");
    rule("#dde1e6", "var(--rule)");
    for colour in colour::all() {
        rule(colour.light, &format!("light-dark({}, {})", colour.light, colour.dark));
    }
    rules
}
