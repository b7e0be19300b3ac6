//! Runs from left to right; triangles are changes beyond the noise.

use super::axis::{Axis, Frame, time_unit};
use super::canvas::{Canvas, Side, Words};
use super::{Area, Figure, PANEL, Panel, by_panel};
use crate::report::chart::TrendPoint;

pub fn panels<'a>(
    figure: &'a Figure<'_>,
    names: &[String],
    runs: &'a [String],
    points: &'a [TrendPoint],
) -> Vec<Panel<'a>> {
    let panel = |(title, points): (String, Vec<&'a TrendPoint>)| Panel {
        title,
        height: PANEL.1,
        draw: Box::new(move |canvas, area| draw(figure, canvas, area, runs, &points)),
    };
    by_panel(names, points, |point| point.panel).into_iter().map(panel).collect()
}

fn draw(
    figure: &Figure<'_>,
    canvas: &Canvas<'_>,
    area: Area,
    names: &[String],
    points: &[&TrendPoint],
) -> Result<(), String> {
    // Only runs that have measured something of the panel take room.
    let mut runs: Vec<usize> = points.iter().map(|point| point.run).collect();
    runs.sort_unstable();
    runs.dedup();
    const TICKS: usize = 3;
    let step = (runs.len() - 1).div_ceil(TICKS - 1).max(1);
    let ticks = (0..runs.len()).rev().step_by(step);
    let named = ticks.map(|index| (index as f64, names[runs[index]].chars().take(11).collect())).collect();
    let (unit, factor) = time_unit(points.iter().map(|point| point.value));
    // What is written above and below the changes stays inside.
    let most = points.iter().map(|point| point.value).fold(0.0, f64::max);
    let least = points.iter().map(|point| point.value).fold(f64::INFINITY, f64::min);
    let beyond = (most / least).powf(0.16).max(1.08);
    let room = |point: &&TrendPoint| if point.change.is_some() { beyond } else { 1.0 };
    let values: Vec<f64> = points
        .iter()
        .flat_map(|point| [room(point), 1.0 / room(point)].map(|room| point.value * factor * room))
        .collect();
    let frame = Frame {
        left: area.left + 50.0,
        top: area.top + 26.0,
        right: area.left + area.width - 30.0,
        bottom: area.top + area.height - 48.0,
        x: Axis::given(-0.4, runs.len() as f64 - 0.6, named, "run (UTC)"),
        y: Axis::log(&values, &format!("latency, p50 ({unit})")),
    };
    frame.draw(canvas)?;
    let at = |point: &TrendPoint| {
        let run = runs.iter().position(|run| *run == point.run).unwrap_or_default();
        frame.at(run as f64, point.value * factor)
    };
    for members in figure.by_series(points, |point| point.case) {
        let places: Vec<_> = members.iter().map(|point| at(point)).collect();
        figure.line(canvas, members[0].case, &places)?;
        for (point, place) in members.iter().zip(places) {
            canvas.dot(place, 3, figure.case_colour(point.case))?;
        }
    }
    let mut written: Vec<(f64, f64)> = Vec::new();
    for point in points {
        let Some(change) = &point.change else { continue };
        let (x, y) = at(point);
        let is_up = change.ratio > 1.0;
        canvas.triangle((x, y), is_up, figure.case_colour(point.case))?;
        let place = (x, if is_up { y - 15.0 } else { y + 15.0 });
        if written.iter().all(|(left, top)| (left - place.0).abs() > 44.0 || (top - place.1).abs() > 13.0) {
            canvas.text(&in_words(change.ratio), place, Words::VALUE.on(Side::Centre))?;
            written.push(place);
        }
    }
    Ok(())
}

/// `+12 %`, or `×3.4` where per cents say little.
fn in_words(ratio: f64) -> String {
    if !(0.5..=2.0).contains(&ratio) {
        let digits: f64 = format!("{ratio:.1e}").parse().unwrap_or(ratio);
        return format!("×{digits}");
    }
    let percent = 100.0 * (ratio - 1.0);
    format!("{}{:.0} %", if percent < 0.0 { "−" } else { "+" }, percent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_change_is_a_factor() {
        assert_eq!([1.1234, 0.9, 3.4321, 0.000_951].map(in_words), ["+12 %", "−10 %", "×3.4", "×0.00095"]);
    }
}
