//! A panel's frame: where values are, and the lines and ticks that say so.

use super::canvas::{Canvas, INK, RULE, Side, Words};
use crate::report::chart::Scale;

/// One direction: values from low to high, and the ticks among them.
pub struct Axis {
    is_log: bool,
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
    label: String,
}

impl Axis {
    /// For these values, of which there is at least one.
    pub fn new(scale: Scale, values: &[f64], label: &str) -> Self {
        match scale {
            Scale::Log => Axis::log(values, label),
            Scale::Fitted => Axis::fitted(values, label),
            _ => Axis::linear(values, label),
        }
    }

    /// The ends a little outside of the values, and at most seven ticks.
    pub fn log(values: &[f64], label: &str) -> Self {
        let (low, high) = ends(values.iter().copied().filter(|value| *value > 0.0));
        let room = (high / low).powf(0.07).max(1.12);
        let (low, high) = (low / room, high * room);
        let of = |parts: &[f64]| -> Vec<f64> {
            let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
            let all = decades.flat_map(|decade| parts.iter().map(move |part| part * 10f64.powi(decade)));
            all.filter(|value| (low..=high).contains(value)).collect()
        };
        let mut ticks = [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]]
            .into_iter()
            .map(of)
            .find(|ticks| ticks.len() <= 7)
            .unwrap_or_else(|| of(&[1.0]).into_iter().step_by(2).collect());
        if ticks.len() < 3 {
            ticks = round_values(low, high);
        }
        Axis { is_log: true, low, high, ticks: named(ticks), label: label.into() }
    }

    /// From zero.
    pub fn linear(values: &[f64], label: &str) -> Self {
        let (_, high) = ends(values.iter().copied());
        let high = if high > 0.0 { high * 1.05 } else { 1.0 };
        Axis { is_log: false, low: 0.0, high, ticks: named(round_values(0.0, high)), label: label.into() }
    }

    /// A little more than from the smallest value to the largest.
    pub fn fitted(values: &[f64], label: &str) -> Self {
        let (low, high) = ends(values.iter().copied());
        let room = ((high - low) * 0.1).max(high.abs() * 1e-3).max(1e-9);
        let (low, high) = (low - room, high + room);
        Axis { is_log: false, low, high, ticks: named(round_values(low, high)), label: label.into() }
    }

    /// With these ticks.
    pub fn given(low: f64, high: f64, ticks: Vec<(f64, String)>, label: &str) -> Self {
        Axis { is_log: false, low, high, ticks, label: label.into() }
    }

    /// 0 at the low end, 1 at the high one.
    fn part(&self, value: f64) -> f64 {
        let place = |value: f64| if self.is_log { value.ln() } else { value };
        (place(value) - place(self.low)) / (place(self.high) - place(self.low))
    }
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low.is_finite() { (low, high) } else { (1.0, 1.0) }
}

/// Multiples of 1, 2 or 5 times a power of ten: from three to seven of them.
fn round_values(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|part| part * power).find(|step| *step >= rough).unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    (first..first + 12).map(|index| index as f64 * step).take_while(|value| *value <= high).collect()
}

fn named(ticks: Vec<f64>) -> Vec<(f64, String)> {
    ticks.into_iter().map(|value| (value, short(value))).collect()
}

/// As few characters as tell it: `0.2`, `5000`, `20k`.
fn short(value: f64) -> String {
    let (value, suffix) = match value.abs() {
        magnitude if magnitude >= 1e6 => (value / 1e6, "M"),
        magnitude if magnitude >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    format!("{digits}{suffix}")
}

/// A rectangle of the sheet with an axis below and one on the left.
pub struct Frame {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
    pub x: Axis,
    pub y: Axis,
}

impl Frame {
    pub fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (self.left + self.x.part(x) * (self.right - self.left), self.bottom - self.y.part(y) * (self.bottom - self.top))
    }

    pub fn draw(&self, canvas: &Canvas<'_>) -> Result<(), String> {
        for (value, name) in &self.y.ticks {
            let (_, y) = self.at(self.x.low, *value);
            canvas.line(&[(self.left, y), (self.right, y)], RULE, 1.0)?;
            canvas.text(name, (self.left - 6.0, y), Words::LABEL.on(Side::Left))?;
        }
        for (value, name) in &self.x.ticks {
            let (x, _) = self.at(*value, self.y.low);
            canvas.line(&[(x, self.bottom), (x, self.bottom + 4.0)], INK, 1.0)?;
            canvas.text(name, (x, self.bottom + 13.0), Words::LABEL.on(Side::Centre))?;
        }
        canvas.line(&[(self.left, self.bottom), (self.right, self.bottom)], INK, 1.0)?;
        canvas.text(&self.x.label, (self.right, self.bottom + 29.0), Words::LABEL.quiet().on(Side::Left))?;
        canvas.text(&self.y.label, (self.left - 44.0, self.top - 14.0), Words::LABEL.quiet())
    }

    /// Upright lines at the ticks, for charts that are read from below.
    pub fn draw_upright(&self, canvas: &Canvas<'_>) -> Result<(), String> {
        for (value, _) in &self.x.ticks {
            let (x, _) = self.at(*value, self.y.low);
            canvas.line(&[(x, self.top), (x, self.bottom)], RULE, 1.0)?;
        }
        Ok(())
    }
}

/// The unit in which times are read best, and how many of it a millisecond is.
pub fn time_unit(milliseconds: impl Iterator<Item = f64>) -> (&'static str, f64) {
    match milliseconds.fold(0.0, f64::max) {
        most if most < 1e-3 => ("ns", 1e6),
        most if most < 1.0 => ("µs", 1e3),
        most if most < 1e4 => ("ms", 1.0),
        _ => ("s", 1e-3),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_are_inside_and_ticks_are_few(values in prop::collection::vec(1e-6..1e9f64, 1..20)) {
            for axis in [Axis::log(&values, ""), Axis::linear(&values, ""), Axis::fitted(&values, "")] {
                prop_assert!(values.iter().all(|value| (0.0..=1.0).contains(&axis.part(*value))));
                prop_assert!((1..=11).contains(&axis.ticks.len()), "{:?}", axis.ticks);
                prop_assert!(axis.ticks.iter().all(|(value, _)| (0.0..=1.0).contains(&axis.part(*value))));
            }
        }
    }

    #[test]
    fn ticks_are_round_and_short() {
        let names = |axis: Axis| axis.ticks.into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(names(Axis::log(&[0.02, 0.5], "")), ["0.02", "0.05", "0.1", "0.2", "0.5"]);
        assert_eq!(names(Axis::log(&[9_000.0, 110_000.0], "")), ["10k", "20k", "50k", "100k"]);
        assert_eq!(names(Axis::linear(&[9.0], "")), ["0", "2", "4", "6", "8"]);
        assert_eq!(time_unit([0.02, 0.3].into_iter()), ("µs", 1e3));
    }
}
