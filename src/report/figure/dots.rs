//! Rows with a dot a series: architectures, and hardware.

use super::axis::{Axis, Frame};
use super::canvas::{Canvas, QUIET, RULE, Side, Words};
use super::{Area, Figure, Panel, by_panel};
use crate::report::chart::Dot;

/// A row, a series, and the geometric mean of its values.
type Mean<'a> = (usize, &'a str, f64);

pub fn panels<'a>(
    figure: &'a Figure<'_>,
    names: &[String],
    rows: &'a [String],
    reference: Option<f64>,
    points: &'a [Dot],
) -> Vec<Panel<'a>> {
    let panel = |(title, points): (String, Vec<&'a Dot>)| {
        let means = means(&points);
        let mut own: Vec<usize> = means.iter().map(|(row, ..)| *row).collect();
        own.sort_unstable();
        own.dedup();
        Panel {
            title,
            height: 80.0 + 26.0 * own.len() as f64,
            draw: Box::new(move |canvas, area| {
                let named: Vec<(usize, &str)> = own.iter().map(|row| (*row, rows[*row].as_str())).collect();
                draw(figure, canvas, area, &named, reference, &means)
            }),
        }
    };
    by_panel(names, points, |point| point.panel).into_iter().map(panel).collect()
}

fn means<'a>(points: &[&'a Dot]) -> Vec<Mean<'a>> {
    let mut groups: Vec<(usize, &str, Vec<f64>)> = Vec::new();
    for point in points {
        match groups.iter_mut().find(|(row, series, _)| (*row, *series) == (point.row, point.series.as_str())) {
            Some((.., logarithms)) => logarithms.push(point.value.ln()),
            None => groups.push((point.row, &point.series, vec![point.value.ln()])),
        }
    }
    let mean = |logarithms: &[f64]| (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp();
    groups.into_iter().map(|(row, series, logarithms)| (row, series, mean(&logarithms))).collect()
}

fn draw(
    figure: &Figure<'_>,
    canvas: &Canvas<'_>,
    area: Area,
    rows: &[(usize, &str)],
    reference: Option<f64>,
    means: &[Mean<'_>],
) -> Result<(), String> {
    let values: Vec<f64> = means.iter().map(|(.., value)| *value).chain(reference).collect();
    let longest = rows.iter().map(|(_, name)| Words::LABEL.width(name)).fold(0.0, f64::max);
    let frame = Frame {
        left: area.left + longest.min(area.width * 0.5) + 16.0,
        top: area.top + 4.0,
        right: area.left + area.width - 20.0,
        bottom: area.top + area.height - 48.0,
        x: Axis::log(&values, &figure.chart.x.label),
        y: Axis::given(0.0, rows.len() as f64, Vec::new(), ""),
    };
    frame.draw_upright(canvas)?;
    frame.draw(canvas)?;
    let upright = |place: usize| (rows.len() - place) as f64 - 0.5;
    if let Some(reference) = reference {
        canvas.dashed(&[frame.at(reference, 0.0), frame.at(reference, rows.len() as f64)], QUIET, 5, 1)?;
    }
    let legend = figure.legend();
    for (place, (row, name)) in rows.iter().enumerate() {
        let own: Vec<&Mean<'_>> = means.iter().filter(|(of, ..)| of == row).collect();
        let (_, y) = frame.at(values[0], upright(place));
        canvas.text(name, (frame.left - 8.0, y), Words::LABEL.on(Side::Left))?;
        let places = || own.iter().map(|(.., value)| frame.at(*value, upright(place)));
        let ends = places().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (x, _)| (low.min(x), high.max(x)));
        canvas.line(&[(ends.0, y), (ends.1, y)], RULE, 3.0)?;
        for ((_, series, _), at) in own.iter().zip(places()) {
            let colour = legend.iter().find(|(name, _)| name == series).map_or(QUIET, |(_, colour)| *colour);
            canvas.dot(at, 6, colour)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_one_geometric_mean_a_series() {
        let dot = |row, series: &str, value| Dot { case: 0, panel: 0, row, series: series.into(), value };
        let points = [dot(0, "ort", 1.0), dot(0, "tch", 3.0), dot(0, "ort", 4.0), dot(1, "ort", 5.0)];
        let found: Vec<_> = means(&points.iter().collect::<Vec<_>>())
            .into_iter()
            .map(|(row, name, mean)| (row, name, mean.round()))
            .collect();
        assert_eq!(found, [(0, "ort", 2.0), (0, "tch", 3.0), (1, "ort", 5.0)]);
    }
}
