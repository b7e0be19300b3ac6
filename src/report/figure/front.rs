//! A cloud with its Pareto front.

use super::axis::{Axis, Frame};
use super::canvas::{Canvas, INK, Place, QUIET, Side, Words};
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
    for (label, at, side) in labels(points, &front, &place, area.left) {
        canvas.text(label, at, Words::LABEL.on(side))?;
    }
    Ok(())
}

/// Each model once, those on the front first, none over another or over a point: beside its point, above or below it.
fn labels<'a>(
    points: &[&'a FrontPoint],
    front: &[&'a FrontPoint],
    place: &dyn Fn(&FrontPoint) -> Place,
    left_end: f64,
) -> Vec<(&'a str, Place, Side)> {
    let mut rest = points.to_vec();
    rest.sort_by(|one, other| other.x.total_cmp(&one.x));
    let mut placed: Vec<(&str, Place, Side)> = Vec::new();
    for point in front.iter().chain(&rest).copied() {
        let label = point.label.as_str();
        let (x, y) = place(point);
        // The line of the front goes on to the right.
        let beside = if point.is_on_front { (x + 6.0, y - 14.0) } else { (x + 12.0, y) };
        let tried = [
            (beside, Side::Right),
            ((x - 12.0, y), Side::Left),
            ((x, y - 16.0), Side::Centre),
            ((x, y + 16.0), Side::Centre),
        ];
        let is_free = |(at, side): &(Place, Side)| {
            let (left, right) = ends(label, *at, *side);
            let covers = points.iter().map(|other| place(other)).any(|(other_x, other_y)| {
                (other_y - at.1).abs() < 9.0 && other_x > left - 7.0 && other_x < right + 4.0
            });
            let hits = placed.iter().any(|(other, other_at, other_side)| {
                let (other_left, other_right) = ends(other, *other_at, *other_side);
                (other_at.1 - at.1).abs() < 14.0 && other_left < right + 4.0 && other_right + 4.0 > left
            });
            left >= left_end && !covers && !hits
        };
        let is_known = placed.iter().any(|(known, ..)| *known == label);
        if let Some((at, side)) = tried.into_iter().find(|tried| !is_known && is_free(tried)) {
            placed.push((label, at, side));
        }
    }
    placed
}

/// Where words begin and end.
fn ends(text: &str, (x, _): Place, side: Side) -> (f64, f64) {
    let width = Words::LABEL.width(text);
    match side {
        Side::Right => (x, x + width),
        Side::Left => (x - width, x),
        Side::Centre => (x - width / 2.0, x + width / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f64, label: &str) -> FrontPoint {
        FrontPoint { case: 0, panel: 0, x, y: 1.0, label: label.into(), is_on_front: false }
    }

    #[test]
    fn a_label_goes_where_there_is_room() {
        let points = [point(100.0, "one"), point(110.0, "two"), point(120.0, "three"), point(300.0, "two")];
        let points: Vec<&FrontPoint> = points.iter().collect();
        let found = labels(&points, &[], &|point| (point.x, 50.0), 0.0);
        let sides: Vec<_> = found.iter().map(|(label, at, _)| (*label, *at)).collect();
        // From the right; "two" has its label at the first of its points, and "one" has room on its left.
        assert_eq!(sides, [("two", (312.0, 50.0)), ("three", (132.0, 50.0)), ("one", (88.0, 50.0))]);
        let narrow = labels(&points[..2], &[], &|point| (point.x, 50.0), 85.0);
        assert_eq!(
            narrow.iter().map(|(label, at, _)| (*label, *at)).collect::<Vec<_>>(),
            [("two", (122.0, 50.0)), ("one", (100.0, 34.0))]
        );
    }
}
