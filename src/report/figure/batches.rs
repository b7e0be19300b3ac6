//! A quantity over batch sizes: lines; bars where there is one batch size only.

use super::axis::{Axis, Frame, time_unit};
use super::canvas::{Canvas, INK, Side, Words};
use super::{Area, Figure, PANEL, Panel, by_panel};
use crate::report::chart::BatchPoint;
use crate::report::ranking::{latency, three_digits};

pub fn panels<'a>(figure: &'a Figure<'_>, names: &[String], points: &'a [BatchPoint]) -> Vec<Panel<'a>> {
    let panel = |(title, points): (String, Vec<&'a BatchPoint>)| {
        let mut sizes: Vec<usize> = points.iter().map(|point| point.batch_size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        match sizes.as_slice() {
            [size] => Panel {
                title: format!("{title} · batch {size}"),
                height: 84.0 + 30.0 * points.len() as f64,
                draw: Box::new(move |canvas, area| bars(figure, canvas, area, &points)),
            },
            _ => Panel {
                title,
                height: PANEL.1,
                draw: Box::new(move |canvas, area| lines(figure, canvas, area, &points, &sizes)),
            },
        }
    };
    by_panel(names, points, |point| point.panel).into_iter().map(panel).collect()
}

/// How values are written: the axis' label, a factor, and one value in words.
struct Measure {
    label: String,
    factor: f64,
    text: fn(f64) -> String,
}

fn measure(figure: &Figure<'_>, points: &[&BatchPoint]) -> Measure {
    match figure.chart.id {
        "latency" => {
            let (unit, factor) = time_unit(points.iter().map(|point| point.value));
            Measure { label: format!("latency ({unit})"), factor, text: |value| latency(Some(value)) }
        }
        "memory" => Measure { label: "peak memory (MB)".into(), factor: 1.0, text: |value| format!("{value:.0} MB") },
        _ => {
            let is_tokens = figure.payload.cases[points[0].case].tokens_per_second.is_some();
            let unit = if is_tokens { "tokens/s" } else { "samples/s" };
            Measure { label: format!("throughput ({unit})"), factor: 1.0, text: three_digits }
        }
    }
}

fn lines(
    figure: &Figure<'_>,
    canvas: &Canvas<'_>,
    area: Area,
    points: &[&BatchPoint],
    sizes: &[usize],
) -> Result<(), String> {
    let measure = measure(figure, points);
    let all = points.iter().flat_map(|point| [Some(point.value), point.low, point.high]).flatten();
    let values: Vec<f64> = all.map(|value| value * measure.factor).collect();
    let ticks = sizes.iter().enumerate().map(|(index, size)| (index as f64, size.to_string())).collect();
    let frame = Frame {
        left: area.left + 50.0,
        top: area.top + 26.0,
        right: area.left + area.width - 20.0,
        bottom: area.top + area.height - 48.0,
        x: Axis::given(-0.4, sizes.len() as f64 - 0.6, ticks, "batch size (samples)"),
        y: Axis::new(figure.chart.y.scale, &values, &measure.label),
    };
    frame.draw(canvas)?;
    let x = |point: &BatchPoint| sizes.iter().position(|size| *size == point.batch_size).unwrap_or_default() as f64;
    let at = |point: &BatchPoint, value: f64| frame.at(x(point), value * measure.factor);
    for mut members in figure.by_series(points, |point| point.case) {
        members.sort_by_key(|point| point.batch_size);
        let places: Vec<_> = members.iter().map(|point| at(point, point.value)).collect();
        figure.line(canvas, members[0].case, &places)?;
        for point in members {
            let colour = figure.case_colour(point.case);
            if let Some((low, high)) = point.low.zip(point.high) {
                canvas.whisker(at(point, low), at(point, high), colour, 2)?;
            }
            figure.mark(canvas, point.case, at(point, point.value))?;
        }
    }
    Ok(())
}

fn bars(figure: &Figure<'_>, canvas: &Canvas<'_>, area: Area, points: &[&BatchPoint]) -> Result<(), String> {
    let measure = measure(figure, points);
    let end = |point: &BatchPoint| point.value.max(point.high.unwrap_or_default()) * measure.factor;
    let names = points.iter().map(|point| Words::LABEL.width(figure.series(point.case)));
    let most = points.iter().map(|point| end(point)).fold(0.0, f64::max);
    let frame = Frame {
        left: area.left + names.fold(30.0, f64::max).min(area.width * 0.45) + 10.0,
        top: area.top + 6.0,
        right: area.left + area.width - 24.0,
        bottom: area.top + area.height - 48.0,
        x: Axis::linear(&[most * 1.25], &measure.label),
        y: Axis::given(0.0, points.len() as f64, Vec::new(), ""),
    };
    frame.draw_upright(canvas)?;
    frame.draw(canvas)?;
    for (index, point) in points.iter().enumerate() {
        let row = (points.len() - index) as f64 - 0.5;
        let at = |value: f64| frame.at(value * measure.factor, row);
        let (left, y) = at(0.0);
        canvas.text(figure.series(point.case), (left - 6.0, y), Words::LABEL.on(Side::Left))?;
        canvas.rectangle((left, y - 11.0), (at(point.value).0, y + 11.0), figure.case_colour(point.case))?;
        if let Some((low, high)) = point.low.zip(point.high) {
            canvas.whisker(at(low), at(high), INK, 1)?;
        }
        let (right, _) = frame.at(end(point), row);
        canvas.text(&(measure.text)(point.value), (right + 6.0, y), Words::VALUE)?;
    }
    Ok(())
}
