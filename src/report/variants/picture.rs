//! The Pareto picture: quality against latency, with a label a variant.

use super::{Measure, VariantTable};
use crate::report::chart::{Axis, Better, Chart, FrontPoint, Plot, Scale, front};
use crate::report::colour::{PLACES, colours};
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
        points.push(FrontPoint { case: cases.len(), panel: 0, x, y: scale * y, label, is_on_front: false });
        let place = if record.device == "cpu" { String::new() } else { format!(" · {}", record.device) };
        cases.push(CaseRow::new(record, format!("{}{place}", record.backend)));
    }
    if points.len() < 2 {
        return Ok(None);
    }
    let values: Vec<(f64, f64)> = points.iter().map(|point| (point.x, point.y)).collect();
    for (point, is_on_front) in points.iter_mut().zip(front(&values, Better::Higher)) {
        point.is_on_front = is_on_front;
    }
    let chart = Chart {
        id: "variants",
        title,
        caption: String::new(),
        x: Axis { label: "latency, p50 (ms)".into(), scale: Scale::Log },
        y: Axis { label: label.into(), scale: Scale::Fitted },
        plot: Plot::Front { y_is_better: Better::Higher, panels: vec![format!("batch {}", table.batch_size)], points },
        absent: None,
    };
    let payload = Payload {
        title: String::new(),
        runs: Vec::new(),
        machines: Vec::new(),
        columns: Vec::new(),
        colours: colours(cases.iter().map(|case| case.backend.as_str())),
        cases,
        charts: vec![chart],
        places: PLACES,
    };
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
