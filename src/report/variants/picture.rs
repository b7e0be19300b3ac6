//! The Pareto picture: quality against latency, with a label a variant.

use super::{Measure, VariantTable};
use crate::report::chart::{Better, Chart, FrontPoint, Plot};
use crate::report::drawing::Drawing;
use crate::report::payload::{CaseRow, Payload};

/// An SVG file; none where fewer than two rows have both figures.
///
/// # Errors
/// It cannot be drawn.
pub fn svg(table: &VariantTable) -> Result<Option<String>, String> {
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
        let place = if record.device == "cpu" { String::new() } else { format!(" · {}", record.device) };
        cases.push(CaseRow::new(record, format!("{}{place}", record.backend)));
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
    let payload = Payload::of_chart(chart, cases);
    let drawn = Drawing::new(&payload).and_then(|drawing| drawing.svg("variants"));
    drawn.map(Some).map_err(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SAME, example, measured, table_of};
    use super::*;

    #[test]
    fn every_variant_has_a_label() {
        let svg = svg(&table_of(example())).unwrap().unwrap();
        for part in ["original", "int8-static ●", "pruned", "accuracy (%)", "latency, p50 (ms)"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(!svg.contains("distilled") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn one_point_is_no_picture() {
        let mut other = measured("int8", "ort", 1.0, 1.0, SAME);
        other.accuracy = None;
        assert_eq!(svg(&table_of(vec![measured("original", "ort", 1.0, 1.0, SAME), other])), Ok(None));
    }
}
