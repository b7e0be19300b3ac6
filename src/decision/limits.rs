//! The limits that a recommended case must keep.

use anyhow::Result;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::quality::Loss;
use super::{Quality, UnderLoad, own_memory};
use crate::report::numbers::{latency, megabytes, three_digits_of_any};
use crate::run_data::{Metric, Record};
use crate::selection::values;

/// The limits that a recommended case must keep, as flags.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// The longest p99 of a call, as 20ms or 1s; its upper bound counts where there is one
    #[arg(long = "max-p99", value_name = "TIME", allow_hyphen_values = true, value_parser = milliseconds)]
    pub max_p99_ms: Option<f64>,
    /// The largest peak memory, as 1GB or 200MB: of the device if it has its own, otherwise of the process
    #[arg(long = "max-memory", value_name = "SIZE", allow_hyphen_values = true, value_parser = values::megabytes)]
    pub max_memory_mb: Option<f64>,
    /// The fewest samples, or tokens, per second, as 100/s
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, value_parser = values::rate)]
    pub min_rate: Option<f64>,
    /// The largest KL divergence of a language model's next token from the original's: the mean, in nats. The upper bound counts
    #[arg(long, value_name = "NATS", allow_hyphen_values = true, value_parser = values::above_zero)]
    pub max_kl: Option<f64>,
    /// The largest perplexity relative to the original's, as 1.02x. The upper bound counts
    #[arg(long, value_name = "TIMES", allow_hyphen_values = true, value_parser = values::factor)]
    pub max_perplexity: Option<f64>,
}

fn milliseconds(text: &str) -> Result<f64> {
    Ok(1e3 * values::duration(text)?)
}

/// The limit that a row breaks, and why.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Excluded {
    /// `max-p99`, `max-memory`, `min-rate`, `max-kl`, `max-perplexity`, `verified` or `filter`.
    pub limit: &'static str,
    /// `p99 31.0 ms is above 20.0 ms`.
    pub why: String,
    /// The flag with a wider limit that the row would keep: `--max-p99 32ms`.
    pub would_take: Option<String>,
    /// Whether this is the only limit that the row breaks.
    #[serde(skip)]
    pub is_only: bool,
}

/// The losses of a row against the original, from its metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Losses {
    kl: Option<Loss>,
    /// As a multiple of the original's.
    perplexity: Option<Loss>,
}

impl Excluded {
    /// The limit of [`Excluded::by_filter`].
    pub const FILTER: &str = "filter";
    /// The limit of [`Excluded::uncompared`].
    pub const UNCOMPARED: &str = "verified";

    /// For a case that the filters leave out.
    pub fn by_filter() -> Self {
        let why = "the filters leave it out".to_owned();
        Excluded { limit: Excluded::FILTER, why, would_take: None, is_only: false }
    }

    /// For a case whose outputs may be anything.
    pub fn uncompared(is_only: bool) -> Self {
        let why = "its outputs were compared with nothing".to_owned();
        Excluded { limit: Excluded::UNCOMPARED, why, would_take: None, is_only }
    }
}

impl Losses {
    /// The original itself has no losses.
    pub fn of(metrics: &[Metric], is_original: bool) -> Self {
        let of = |name: &str, none: f64| {
            let metric = metrics.iter().find(|metric| metric.metric == name);
            let measured = metric.map(|it| (none + it.value, it.upper.map(|upper| none + upper)));
            measured.or(is_original.then_some((none, Some(none))))
        };
        Losses { kl: of("kl_divergence", 0.0), perplexity: of("perplexity_change", 1.0) }
    }
}

/// A divergence with three significant digits.
fn nats(divergence: f64) -> String {
    let first = divergence.abs().log10().floor();
    let decimals = if first.is_finite() { (2.0 - first).clamp(0.0, 9.0) as usize } else { 2 };
    format!("{divergence:.decimals$}")
}

fn factor(ratio: f64) -> String {
    format!("{ratio:.3}x")
}

impl Limits {
    /// The first limit that the record breaks. An unknown figure breaks its limit. If p99 has an upper bound, the bound
    /// counts. Figures under load count in place of those of sequential calls.
    pub fn excluding(&self, record: &Record, losses: Losses, under_load: Option<&UnderLoad>) -> Option<Excluded> {
        let of_load = under_load.map(|it| ("p99 under load", it.p99_ms));
        let of_bound = record.latency_p99_upper_ms.map(|bound| ("the 99 % bound of p99", bound));
        let (of_p99, p99) = of_load.or(of_bound).or(record.latency_p99_ms.map(|p99| ("p99", p99))).unzip();
        let memory = under_load.and_then(|it| it.memory_mb).or_else(|| own_memory(record));
        let of_samples = under_load.filter(|_| record.tokens_per_second.is_none());
        // A trial at a given rate shows that the case serves at least as much.
        let how = |is_under_load: bool| if is_under_load { " under load" } else { "" };
        let (rate, of_rate) = match (of_samples, super::rate(record)) {
            (Some(it), Some(own)) if !it.is_highest && own > it.samples_per_s => (Some(own), how(false)),
            (Some(it), _) => (Some(it.samples_per_s), how(true)),
            (None, own) => (own, how(false)),
        };
        let of_memory = how(under_load.is_some_and(|it| it.memory_mb.is_some()));
        let excluded = |limit, why, would_take| Excluded { limit, why, would_take, is_only: true };
        let above = |limit, name: &str, value: Option<f64>, most: Option<f64>, text: fn(f64) -> String, unit: &str| {
            let most = most.filter(|most| !value.is_some_and(|value| value <= *most))?;
            let why = match value {
                Some(value) => format!("{name} {} is above {}", text(value), text(most)),
                None => format!("{name} is not known"),
            };
            Some(excluded(limit, why, value.and_then(|value| flag(limit, value, unit))))
        };
        let too_few = || {
            let least = self.min_rate.filter(|least| !rate.is_some_and(|rate| rate >= *least))?;
            let why = match rate {
                Some(rate) => format!(
                    "{} per second{of_rate} are below {}",
                    three_digits_of_any(rate),
                    three_digits_of_any(least)
                ),
                None => "its rate is not known".to_owned(),
            };
            Some(excluded("min-rate", why, rate.and_then(|rate| flag("min-rate", rate, "/s"))))
        };
        // A wider limit has to include the upper bound, too.
        let lost = |limit, name: &str, loss: Option<Loss>, most: Option<f64>, text: fn(f64) -> String, unit: &str| {
            let excluded = above(limit, name, loss.map(|(value, _)| value), most, text, unit)?;
            let would_take = loss.and_then(|(_, upper)| flag(limit, upper?, unit));
            Some(Excluded { would_take, ..excluded })
        };
        let all = [
            above("max-p99", of_p99.unwrap_or("p99"), p99, self.max_p99_ms, latency, "ms"),
            above("max-memory", &format!("memory{of_memory}"), memory, self.max_memory_mb, megabytes, "MB"),
            too_few(),
            lost("max-kl", "the divergence of the next token", losses.kl, self.max_kl, nats, ""),
            lost("max-perplexity", "the relative perplexity", losses.perplexity, self.max_perplexity, factor, "x"),
        ];
        let mut beyond = all.into_iter().flatten();
        let first = beyond.next()?;
        Some(Excluded { is_only: beyond.next().is_none(), ..first })
    }

    /// A row's quality by the limits of its losses: the worst of both. Returns `None` if there is no such limit.
    pub fn quality(&self, losses: Losses) -> Option<Quality> {
        let limits = [(self.max_kl, losses.kl), (self.max_perplexity, losses.perplexity)];
        let asked = limits.into_iter().filter_map(|(most, loss)| Some(Quality::of_loss(loss, most?)));
        let found: Vec<Quality> = asked.collect();
        [Quality::Lost, Quality::Unknown, Quality::Open, Quality::Kept].into_iter().find(|it| found.contains(it))
    }
}

/// The flag with the tightest two-digit limit that a case of this value keeps: rounded down for `min-rate`, and up for
/// the others. Returns `None` if the value is not a number above 0.
fn flag(limit: &str, value: f64, unit: &str) -> Option<String> {
    let is_least = limit == "min-rate";
    let (shown, unit) = if unit == "ms" && value < 1.0 { (1e3 * value, "us") } else { (value, unit) };
    let is_within = |text: &str| {
        let read = match unit {
            "ms" | "us" => milliseconds(text),
            "MB" => values::megabytes(text),
            "x" => values::factor(text),
            _ => values::rate(text),
        };
        read.is_ok_and(|limit| if is_least { limit <= value } else { limit >= value })
    };
    let exponent = (shown > 0.0 && shown.is_finite()).then(|| shown.log10().floor() as i32 - 1)?;
    let nearest = (shown / 10_f64.powi(exponent)).round() as i64;
    let steps = if is_least { [1, 0, -1] } else { [-1, 0, 1] };
    // Parsing and printing the number gives its shortest form.
    let written = |step: i64| Some(format!("{}{unit}", format!("{}e{exponent}", nearest + step).parse::<f64>().ok()?));
    let text = steps.into_iter().filter_map(written).find(|text| is_within(text))?;
    Some(format!("--{limit} {text}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::tests::record;

    #[test]
    fn small_divergences_are_told_apart() {
        let texts = [0.0, 0.000_094_6, 0.0012, 0.149_3, 1.5, 123.4].map(nats);
        assert_eq!(texts, ["0.00", "0.0000946", "0.00120", "0.149", "1.50", "123"]);
    }

    #[test]
    fn a_limit_says_by_what_it_excludes_and_what_would_do() {
        let slow =
            Record { latency_p99_ms: Some(31.2), throughput_ips: Some(79.0), ..record("m", "ort", 1, Some(30.0)) };
        let excluding = |limits: Limits| {
            limits.excluding(&slow, Losses::default(), None).map(|it| (it.limit, it.why, it.would_take))
        };
        assert_eq!(excluding(Limits { max_p99_ms: Some(31.2), min_rate: Some(79.0), ..Limits::default() }), None);
        let (limit, why, would_take) = excluding(Limits { max_p99_ms: Some(20.0), ..Limits::default() }).unwrap();
        assert_eq!((limit, why.as_str()), ("max-p99", "p99 31.2 ms is above 20.0 ms"));
        assert_eq!(would_take.as_deref(), Some("--max-p99 32ms"));
        let (_, why, would_take) = excluding(Limits { max_memory_mb: Some(1.0), ..Limits::default() }).unwrap();
        assert_eq!((why.as_str(), would_take), ("memory is not known", None));
        let is_only = |max_p99_ms, min_rate| {
            let limits = Limits { max_p99_ms: Some(max_p99_ms), min_rate: Some(min_rate), ..Limits::default() };
            limits.excluding(&slow, Losses::default(), None).unwrap().is_only
        };
        assert_eq!([is_only(20.0, 70.0), is_only(20.0, 100.0), is_only(40.0, 100.0)], [true, false, true]);
    }

    #[test]
    fn a_bound_of_the_percentile_counts_instead_of_the_percentile() {
        let bounded =
            Record { latency_p99_ms: Some(18.0), latency_p99_upper_ms: Some(22.0), ..record("m", "ort", 1, Some(9.0)) };
        assert!(
            Limits { max_p99_ms: Some(20.0), ..Limits::default() }
                .excluding(&bounded, Losses::default(), None)
                .is_some()
        );
    }

    #[test]
    fn a_limit_that_would_do_is_round() {
        let found = [
            ("min-rate", 1604.2, "/s"),
            ("min-rate", 0.0312, "/s"),
            ("max-p99", 0.0301, "ms"),
            ("max-memory", 1234.0, "MB"),
        ];
        let found = found.map(|(limit, value, unit)| flag(limit, value, unit).unwrap());
        assert_eq!(found, ["--min-rate 1600/s", "--min-rate 0.031/s", "--max-p99 31us", "--max-memory 1300MB"]);
        assert_eq!(flag("max-p99", 32.0, "ms").unwrap(), "--max-p99 32ms");
        assert_eq!([flag("min-rate", 0.0, "/s"), flag("max-p99", f64::NAN, "ms")], [None, None]);
    }

    fn losses(kl: (f64, Option<f64>), perplexity_change: (f64, Option<f64>)) -> Losses {
        let metric = |name: &str, (value, upper)| Metric { metric: name.into(), value, upper, ..Metric::default() };
        Losses::of(&[metric("kl_divergence", kl), metric("perplexity_change", perplexity_change)], false)
    }

    #[test]
    fn a_form_that_loses_more_than_a_limit_is_left_out_and_its_bound_would_do() {
        let record = record("m", "llama-cpp", 1, Some(9.0));
        let excluding = |limits: Limits, losses| {
            limits.excluding(&record, losses, None).map(|it| (it.limit, it.why, it.would_take.unwrap_or_default()))
        };
        let kl = |most| Limits { max_kl: Some(most), ..Limits::default() };
        let lossy = losses((0.03, Some(0.036)), (0.01, Some(0.025)));
        let why = "the divergence of the next token 0.0300 is above 0.0200".to_owned();
        assert_eq!(excluding(kl(0.02), lossy), Some(("max-kl", why, "--max-kl 0.036".into())));
        assert_eq!(excluding(kl(0.03), lossy), None);
        let unknown = ("max-kl", "the divergence of the next token is not known".to_owned(), String::new());
        assert_eq!(excluding(kl(0.03), Losses::default()), Some(unknown));
        let perplexity = |most| Limits { max_perplexity: Some(most), ..Limits::default() };
        let why = "the relative perplexity 1.010x is above 1.005x".to_owned();
        assert_eq!(excluding(perplexity(1.005), lossy), Some(("max-perplexity", why, "--max-perplexity 1.1x".into())));
        assert_eq!(excluding(Limits { max_kl: Some(0.03), ..perplexity(1.01) }, lossy), None);
        // Without an upper bound, no limit can be named.
        let unbounded = excluding(kl(0.02), losses((0.03, None), (0.01, None)));
        assert_eq!(unbounded.map(|(.., would_take)| would_take).as_deref(), Some(""));
    }

    #[test]
    fn a_loss_is_kept_if_its_upper_bound_is_within_each_limit() {
        let quality =
            |max_kl, max_perplexity, losses| Limits { max_kl, max_perplexity, ..Limits::default() }.quality(losses);
        let lossy = losses((0.03, Some(0.036)), (0.01, Some(0.025)));
        assert_eq!(quality(None, None, lossy), None);
        let of_kl = [0.029, 0.03, 0.035, 0.036].map(|most| quality(Some(most), None, lossy).unwrap());
        assert_eq!(of_kl, [Quality::Lost, Quality::Open, Quality::Open, Quality::Kept]);
        let of_perplexity = [1.009, 1.02, 1.03].map(|most| quality(None, Some(most), lossy).unwrap());
        assert_eq!(of_perplexity, [Quality::Lost, Quality::Open, Quality::Kept]);
        assert_eq!(quality(Some(0.04), Some(1.02), lossy), Some(Quality::Open));
        assert_eq!(quality(Some(0.02), Some(1.03), lossy), Some(Quality::Lost));
        assert_eq!(quality(Some(0.04), None, losses((0.03, None), (0.01, None))), Some(Quality::Open));
        assert_eq!(quality(Some(0.04), None, Losses::default()), Some(Quality::Unknown));
        // The original loses nothing, and need not be compared with itself.
        let original = Losses::of(&[], true);
        assert_eq!(quality(Some(1e-9), Some(1.0), original), Some(Quality::Kept));
        assert_eq!(
            Limits { max_kl: Some(1e-9), ..Limits::default() }.excluding(&record("m", "ort", 1, None), original, None),
            None
        );
    }

    proptest! {
        /// The parsers of the command line read the limit, and the case keeps it.
        #[test]
        fn a_limit_that_would_do_does_as_a_command(logarithm in -9.0f64..16.0, is_whole in prop::bool::ANY) {
            let value = if is_whole { logarithm.exp().ceil() } else { logarithm.exp() };
            let record = Record {
                latency_p99_ms: Some(value),
                throughput_ips: Some(value),
                memory_mb: Some(value),
                memory_kind: Some("own-process-peak-rss".into()),
                ..record("m", "ort", 1, Some(value))
            };
            for (limit, unit) in [("max-p99", "ms"), ("max-memory", "MB"), ("min-rate", "/s")] {
                let text = flag(limit, value, unit).unwrap();
                let given = text.rsplit(' ').next().unwrap();
                prop_assert!(given.bytes().filter(u8::is_ascii_digit).count() <= 9, "{}", text);
                let limits = match limit {
                    "max-p99" => Limits { max_p99_ms: Some(1e3 * values::duration(given).unwrap()), ..Limits::default() },
                    "max-memory" => Limits { max_memory_mb: Some(values::megabytes(given).unwrap()), ..Limits::default() },
                    _ => Limits { min_rate: Some(values::rate(given).unwrap()), ..Limits::default() },
                };
                prop_assert!(limits.excluding(&record, Losses::default(), None).is_none(), "{}", text);
            }
        }
    }
}
