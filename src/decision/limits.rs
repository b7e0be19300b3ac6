//! What a case must keep to be recommended at all.

use schemars::JsonSchema;
use serde::Serialize;

use super::{UnderLoad, own_memory};
use crate::report::numbers::{latency, megabytes, three_digits};
use crate::run_data::Record;

/// Bounds that a recommended case is within.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    pub max_p99_ms: Option<f64>,
    pub max_memory_mb: Option<f64>,
    /// Samples, or tokens, per second.
    pub min_rate: Option<f64>,
    /// If true, a case counts only if its outputs were compared with a reference or with another backend.
    pub is_verified_only: bool,
}

/// The limit that a row is beyond, and by what.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Excluded {
    /// `max-p99`, `max-memory`, `min-rate` or `verified`.
    pub limit: &'static str,
    /// `p99 31.0 ms is above 20.0 ms`.
    pub why: String,
    /// The limit with which the row would be allowed, as it is written on the command line.
    pub would_take: Option<String>,
}

impl Limits {
    /// The first limit that the record is beyond. A figure that is not known is beyond its limit. Where a percentile has an
    /// upper bound, this is what counts. What was measured under load counts in place of calls one after the other.
    pub fn excluding(&self, record: &Record, under_load: Option<&UnderLoad>) -> Option<Excluded> {
        let p99 = under_load.map(|it| it.p99_ms).or(record.latency_p99_upper_ms).or(record.latency_p99_ms);
        let memory = under_load.and_then(|it| it.memory_mb).or_else(|| own_memory(record));
        let rate = under_load.filter(|_| record.tokens_per_second.is_none()).map(|it| it.samples_per_s);
        let rate = rate.or_else(|| super::rate(record));
        let how = if under_load.is_some() { " under load" } else { "" };
        let above = |limit, name: &str, value: Option<f64>, most: Option<f64>, text: fn(f64) -> String, unit: &str| {
            let most = most.filter(|most| !value.is_some_and(|value| value <= *most))?;
            let why = match value {
                Some(value) => format!("{name}{how} {} is above {}", text(value), text(most)),
                None => format!("{name} is not known"),
            };
            let would_take = value.map(|value| format!("--{limit} {}{unit}", rounded_up(value)));
            Some(Excluded { limit, why, would_take })
        };
        let too_few = || {
            let least = self.min_rate.filter(|least| !rate.is_some_and(|rate| rate >= *least))?;
            let why = match rate {
                Some(rate) => format!("{} per second{how} are below {}", three_digits(rate), three_digits(least)),
                None => "its rate is not known".to_owned(),
            };
            let would_take = rate.map(|rate| format!("--min-rate {}/s", 1.0 / rounded_up(1.0 / rate)));
            Some(Excluded { limit: "min-rate", why, would_take })
        };
        let unverified = || {
            let is_excluded = self.is_verified_only && record.verified != Some(true);
            let why = "its outputs were compared with nothing".to_owned();
            is_excluded.then_some(Excluded { limit: "verified", why, would_take: None })
        };
        unverified()
            .or_else(|| above("max-p99", "p99", p99, self.max_p99_ms, latency, "ms"))
            .or_else(|| above("max-memory", "memory", memory, self.max_memory_mb, megabytes, "MB"))
            .or_else(too_few)
    }
}

/// With two digits, and not below.
fn rounded_up(value: f64) -> f64 {
    let unit = 10_f64.powf(value.log10().floor() - 1.0);
    let digits = (value / unit).ceil();
    // A division by a whole number has no digits that nobody asked for.
    if unit < 1.0 { digits / (1.0 / unit).round() } else { digits * unit }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::record;

    #[test]
    fn a_limit_says_by_what_it_excludes_and_what_would_do() {
        let slow = Record {
            latency_p99_ms: Some(31.2),
            throughput_ips: Some(79.0),
            verified: Some(true),
            ..record("m", "ort", 1, Some(30.0))
        };
        let excluding = |limits: Limits| limits.excluding(&slow, None).map(|it| (it.limit, it.why, it.would_take));
        assert_eq!(excluding(Limits { max_p99_ms: Some(31.2), min_rate: Some(79.0), ..Limits::default() }), None);
        let (limit, why, would_take) = excluding(Limits { max_p99_ms: Some(20.0), ..Limits::default() }).unwrap();
        assert_eq!((limit, why.as_str()), ("max-p99", "p99 31.2 ms is above 20.0 ms"));
        assert_eq!(would_take.as_deref(), Some("--max-p99 32ms"));
        let (_, why, would_take) = excluding(Limits { max_memory_mb: Some(1.0), ..Limits::default() }).unwrap();
        assert_eq!((why.as_str(), would_take), ("memory is not known", None));
        let unverified = Record { verified: None, ..slow.clone() };
        let limits = Limits { is_verified_only: true, ..Limits::default() };
        assert_eq!(limits.excluding(&unverified, None).unwrap().limit, "verified");
    }

    #[test]
    fn a_bound_of_the_percentile_counts_instead_of_the_percentile() {
        let bounded =
            Record { latency_p99_ms: Some(18.0), latency_p99_upper_ms: Some(22.0), ..record("m", "ort", 1, Some(9.0)) };
        assert!(Limits { max_p99_ms: Some(20.0), ..Limits::default() }.excluding(&bounded, None).is_some());
    }
}
