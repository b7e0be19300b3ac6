//! How much slower a machine is now than when its history was measured, by a few cases that were measured again.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use super::example::{Example, Lessons, Runtime, Site};
use super::predictor::Prediction;
use crate::definition::ORIGINAL;
use crate::report::numbers::plural;
use crate::statistics::median;

/// Shorter calls are measured again only if there are no others: their times say more about the process than the
/// machine.
const LEAST_MS: f64 = 1.0;

/// The ratio of the times of a few cases now to their times in the history.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Anchor {
    /// The median over the cases. Predicted times are multiplied by it.
    pub factor: f64,
    /// The cases that were measured again.
    pub cases: Vec<String>,
}

impl Anchor {
    /// From cases, each with its time now and in the history. Returns `None` without a case.
    pub fn of(times: &[(String, f64, f64)]) -> Option<Self> {
        let ratios: Vec<f64> = times.iter().map(|(_, now, then)| (now / then).ln()).collect();
        let cases = times.iter().map(|(case, ..)| case.clone()).collect();
        Some(Anchor { factor: median(&ratios)?.exp(), cases })
    }

    /// `ort on cpu in f32 takes 1.12 times as long now as in the history, by 3 cases (…): predicted times are
    /// multiplied by this`.
    pub fn text(&self, runtime: &str) -> String {
        let cases = plural(self.cases.len(), "case", "cases");
        let (factor, names) = (self.factor, self.cases.join(", "));
        format!(
            "{runtime} takes {factor:.2} times as long now as in the history, by {cases} ({names}): predicted times are multiplied by this"
        )
    }

    /// The prediction for the machine as it is now.
    #[must_use]
    pub fn applied(&self, found: Prediction) -> Prediction {
        Prediction {
            latency_ms: found.latency_ms.times(self.factor),
            throughput_ips: found.throughput_ips.times(1.0 / self.factor),
            ..found
        }
    }
}

impl Lessons {
    /// The rows of a backend, device and dtype that can be measured again in the shortest time, one per model, the
    /// quickest first. They are of originals at their models' default sizes.
    pub fn anchors(&self, runtime: &Runtime, site: &Site) -> Vec<&Example> {
        let is_of = |it: &&Example| {
            let case = &it.subject.work.case;
            let is_plain = case.variant == ORIGINAL && case.dims.0.is_empty();
            is_plain && it.subject.runtime.is_like(runtime) && it.site == *site
        };
        let mut rows: Vec<&Example> = self.examples.iter().filter(is_of).collect();
        let order = |it: &&Example| if it.ms < LEAST_MS { (true, -it.ms) } else { (false, it.ms) };
        rows.sort_by(|one, other| order(one).partial_cmp(&order(other)).unwrap_or(std::cmp::Ordering::Equal));
        let mut models = BTreeSet::new();
        rows.retain(|it| models.insert(&it.subject.work.case.model));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::super::predictor::Estimate;
    use super::*;
    use crate::decision::prediction::Basis;
    use crate::report::tests::record;
    use crate::run_data::Record;

    #[test]
    fn the_median_of_a_few_cases_is_the_drift_of_a_machine() {
        let case = |name: &str, now: f64| (name.to_owned(), now, 2.0);
        assert_eq!(Anchor::of(&[]), None);
        let anchor = Anchor::of(&[case("a", 2.2), case("b", 9.0), case("c", 2.4)]).unwrap();
        assert!((anchor.factor - 1.2).abs() < 1e-9, "{anchor:?}");
        let text = anchor.text("ort on cpu in f32");
        assert!(
            text.starts_with("ort on cpu in f32 takes 1.20 times as long now as in the history, by 3 cases (a, b, c)")
        );
        let estimate = |value: f64| Estimate { value, lower: value / 2.0, upper: 2.0 * value };
        let found = Prediction {
            basis: Basis::OtherModels,
            latency_ms: estimate(10.0),
            throughput_ips: estimate(100.0),
            memory_mb: Some(estimate(50.0)),
            median_error: None,
            rows: 20,
            families: 6,
            would_help: None,
        };
        let applied = anchor.applied(found.clone());
        for (found, expected) in [(applied.latency_ms.value, 12.0), (applied.throughput_ips.upper, 200.0 / 1.2)] {
            assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
        }
        assert_eq!(applied.memory_mb, found.memory_mb);
    }

    #[test]
    fn the_shortest_cases_that_are_not_too_short_are_measured_again_one_of_each_model() {
        let row = |model: &str, backend: &str, batch: usize, ms: f64| Record {
            flops: Some(1),
            convolution_flops: Some(0),
            graph_nodes: Some(1),
            node_bytes: Some(1),
            matrix_products: Some(0),
            ..record(model, backend, batch, Some(ms))
        };
        let rows = [
            row("a", "ort", 1, 0.2),
            row("a", "ort", 8, 1.5),
            row("b", "ort", 1, 0.5),
            row("c", "ort", 1, 30.0),
            // A faster variant is not measured in place of its original.
            Record { variant: "int8".into(), ..row("c", "ort", 1, 3.0) },
            row("c", "ort", 8, 200.0),
            row("d", "tract", 1, 2.0),
            row("e", "ort", 1, 4.0),
        ];
        let lessons = Lessons::of(&rows, &[], |_| true);
        let example = lessons.examples.iter().find(|it| it.subject.runtime.backend == "ort").unwrap();
        let found = lessons.anchors(&example.subject.runtime, &example.site);
        let names: Vec<String> = found.iter().map(|it| it.subject.work.case.to_string()).collect();
        assert_eq!(names, ["a/ort-cpu-f32/8", "e/ort-cpu-f32/1", "c/ort-cpu-f32/1", "b/ort-cpu-f32/1"]);
    }
}
