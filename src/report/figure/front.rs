//! A cloud with its Pareto front.

use super::axis::{Axis, Frame};
use super::canvas::{Canvas, INK, QUIET, Words};
use super::{Area, Figure, Panel, by_panel};
use crate::report::chart::FrontPoint;

pub fn panels<'a>(figure: &'a Figure<'_>, names: &[String], points: &'a [FrontPoint]) -> Vec<Panel<'a>> {
    let panel = |(title, points): (String, Vec<&'a FrontPoint>)| Panel {
        title,
        height: 380.0,
        draw: Box::new(move |canvas, area| draw(figure, canvas, area, &points)),
    };
    by_panel(names, points, |point| point.panel).into_iter().map(panel).collect()
}

fn draw(figure: &Figure<'_>, canvas: &Canvas<'_>, area: Area, points: &[&FrontPoint]) -> Result<(), String> {
    let chart = figure.chart;
    let of = |value: fn(&FrontPoint) -> f64| points.iter().map(|point| value(point)).collect::<Vec<f64>>();
    let frame = Frame {
        left: area.left + 50.0,
        top: area.top + 26.0,
        right: area.left + area.width - 110.0,
        bottom: area.top + area.height - 48.0,
        x: Axis::log(&of(|point| point.x), &chart.x.label),
        y: Axis::new(chart.y.scale, &of(|point| point.y), &chart.y.label),
    };
    frame.draw_upright(canvas)?;
    frame.draw(canvas)?;
    let place = |point: &FrontPoint| frame.at(point.x, point.y);
    let mut front: Vec<&FrontPoint> = points.iter().filter(|point| point.is_on_front).copied().collect();
    front.sort_by(|one, other| one.x.total_cmp(&other.x));
    let mut steps = Vec::new();
    for point in &front {
        let (x, y) = place(point);
        if let Some((_, before)) = steps.last().copied() {
            steps.push((x, before));
        }
        steps.push((x, y));
    }
    if steps.len() > 1 {
        canvas.dashed(&steps, QUIET, 6, 1)?;
    }
    for point in points {
        figure.mark(canvas, point.case, place(point))?;
    }
    for point in &front {
        canvas.ring(place(point), 8, INK)?;
    }
    for point in labelled(points, &front, &place) {
        let (x, y) = place(point);
        canvas.text(&point.label, (x + 12.0, y), Words::LABEL)?;
    }
    Ok(())
}

/// Each model once, those on the front first, none over another or over a point.
fn labelled<'a>(
    points: &[&'a FrontPoint],
    front: &[&'a FrontPoint],
    place: &dyn Fn(&FrontPoint) -> (f64, f64),
) -> Vec<&'a FrontPoint> {
    let mut rest = points.to_vec();
    rest.sort_by(|one, other| other.x.total_cmp(&one.x));
    let mut placed: Vec<&FrontPoint> = Vec::new();
    for point in front.iter().chain(&rest).copied() {
        let (left, y) = place(point);
        let right = |point: &FrontPoint| place(point).0 + 16.0 + Words::LABEL.width(&point.label);
        let hits = |other: &&FrontPoint| {
            let (other_left, other_y) = place(other);
            (other_y - y).abs() < 14.0 && other_left < right(point) && right(other) > left
        };
        let covers = points
            .iter()
            .map(|other| place(other))
            .any(|(x, other_y)| (other_y - y).abs() < 9.0 && x > left + 5.0 && x < right(point));
        let is_known = placed.iter().any(|known| known.label == point.label);
        if !is_known && !covers && !placed.iter().any(hits) {
            placed.push(point);
        }
    }
    placed
}
