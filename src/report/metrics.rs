//! Metrics for readers: a column for each name.

use indexmap::IndexSet;

use super::numbers::{signed, three_digits_of_any};
use crate::run_data::{FRACTION, Metric};

/// The names of metrics, each once, in the order in which they come.
pub fn names<'a>(metrics: impl IntoIterator<Item = &'a Metric>) -> Vec<&'a str> {
    Vec::from_iter(metrics.into_iter().map(|metric| metric.metric.as_str()).collect::<IndexSet<_>>())
}

/// The head of a metric's column: `retrieval at 1`.
pub fn title(name: &str) -> String {
    name.replace('_', " ")
}

/// `96.9 % (89.2 … 99.6) of 64`, `12.3 (11.9 … 12.8) of 32`; a change has a sign: `−1.6 % (−4.7 … +1.5) of 64`.
pub fn text(metric: &Metric) -> String {
    let is_fraction = metric.unit == FRACTION;
    let number = |value: f64| match (metric.changed().is_some(), is_fraction) {
        (true, true) => signed(100.0 * value, 1),
        (true, false) => signed(value, 3),
        (false, true) => format!("{:.1}", 100.0 * value),
        // Five decimals tell cosines near 1 apart.
        (false, false) if (0.1..=1.0).contains(&value.abs()) => format!("{value:.5}"),
        (false, false) => three_digits_of_any(value),
    };
    let value = number(metric.value) + if is_fraction { " %" } else { "" };
    let interval = metric.lower.zip(metric.upper);
    let interval = interval.map(|(lower, upper)| format!(" ({} … {})", number(lower), number(upper)));
    let unit = Some(metric.unit.as_str()).filter(|unit| !is_fraction && !unit.is_empty() && *unit != metric.metric);
    let unit = unit.map(|unit| format!(" {unit}")).unwrap_or_default();
    let samples = Some(metric.samples).filter(|samples| *samples > 0).map(|samples| format!(" of {samples}"));
    format!("{value}{unit}{}{}", interval.unwrap_or_default(), samples.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_of_any_name_has_a_text() {
        let metric = |name: &str, unit: &str, value, (lower, upper)| Metric {
            metric: name.into(),
            unit: unit.into(),
            value,
            lower: Some(lower),
            upper: Some(upper),
            samples: 64,
            ..Metric::default()
        };
        let fraction = metric("retrieval_at_1", FRACTION, 62.0 / 64.0, (0.892, 0.996));
        assert_eq!(text(&fraction), "96.9 % (89.2 … 99.6) of 64");
        let change = metric("map_change", FRACTION, -0.016, (-0.047, 0.0001));
        assert_eq!(text(&change), "−1.6 % (−4.7 … 0.0) of 64");
        assert_eq!(text(&metric("cosine", "cosine", 0.99987, (0.9995, 1.0))), "0.99987 (0.99950 … 1.00000) of 64");
        let divergence = metric("kl_divergence", "nats", 4.4e-6, (0.0, 1.2e-5));
        assert_eq!(text(&divergence), "0.00000440 nats (0.00 … 0.0000120) of 64");
        assert_eq!(text(&Metric { lower: None, ..metric("perplexity", "", 12.34, (0.0, 0.0)) }), "12.3 of 64");
        assert_eq!(title("retrieval_at_1"), "retrieval at 1");
        assert_eq!(names([&fraction, &change, &fraction]), ["retrieval_at_1", "map_change"]);
    }
}
