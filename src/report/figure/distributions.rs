//! Latency over the fraction of the calls; each further nine has as much room.

use super::axis::{Axis, Frame, time_unit};
use super::canvas::Canvas;
use super::{Area, Figure, PANEL, Panel, by_panel};
use crate::report::chart::Curve;

const TICKS: [(f64, &str); 6] =
    [(0.0, "0 %"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")];

pub fn panels<'a>(figure: &'a Figure<'_>, names: &[String], curves: &'a [Curve]) -> Vec<Panel<'a>> {
    let panel = |(title, curves): (String, Vec<&'a Curve>)| Panel {
        title,
        height: PANEL.1,
        draw: Box::new(move |canvas, area| draw(figure, canvas, area, &curves)),
    };
    by_panel(names, curves, |curve| curve.panel).into_iter().map(panel).collect()
}

fn nines(fraction: f64) -> f64 {
    -(1.0 - fraction).log10()
}

fn draw(figure: &Figure<'_>, canvas: &Canvas<'_>, area: Area, curves: &[&Curve]) -> Result<(), String> {
    let bounds = || curves.iter().flat_map(|curve| &curve.bounds);
    let quantiles = || curves.iter().flat_map(|curve| &curve.quantiles);
    let (unit, factor) = time_unit(quantiles().map(|(_, ms)| *ms));
    let values: Vec<f64> = quantiles()
        .map(|(_, ms)| ms * factor)
        .chain(bounds().map(|(_, ms, upper)| upper.unwrap_or(*ms) * factor))
        .collect();
    let most = 1.02 * quantiles().map(|(fraction, _)| nines(*fraction)).fold(nines(0.9), f64::max);
    let ticks = TICKS.into_iter().map(|(fraction, name)| (nines(fraction), name.to_owned()));
    let frame = Frame {
        left: area.left + 50.0,
        top: area.top + 26.0,
        right: area.left + area.width - 28.0,
        bottom: area.top + area.height - 48.0,
        x: Axis::given(
            0.0,
            most,
            ticks.filter(|(at, _)| *at <= most && (*at > 0.0 || most < 2.5)).collect(),
            "part of the calls",
        ),
        y: Axis::log(&values, &format!("latency ({unit})")),
    };
    frame.draw_upright(canvas)?;
    frame.draw(canvas)?;
    let at = |fraction: f64, ms: f64| frame.at(nines(fraction), ms * factor);
    for curve in curves {
        let places: Vec<_> = curve.quantiles.iter().map(|(fraction, ms)| at(*fraction, *ms)).collect();
        figure.line(canvas, curve.case, &places)?;
        for (fraction, ms, upper) in &curve.bounds {
            let colour = figure.case_colour(curve.case);
            if let Some(upper) = upper {
                canvas.whisker(at(*fraction, *ms), at(*fraction, *upper), colour, 4)?;
            }
            figure.mark(canvas, curve.case, at(*fraction, *ms))?;
        }
    }
    Ok(())
}
