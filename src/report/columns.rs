//! The columns of all reports: terminal, Markdown and the page show the same, and `--columns` chooses among them.
//!
//! A new column of the record needs one line in [`COLUMNS`] to be shown everywhere.

use super::compatibility::Standing;
use super::numbers::{fixed, joules, latency, megabytes, percent, rounded, signed, three_digits, three_digits_of_any};
use super::ranking::{Entry, short_message};
use super::table::Column;
use crate::definition::{Status, device_kind};
use crate::run_data::{BY_REFERENCE, Record};
use crate::statistics::proportion_interval;

/// A column: its name for `--columns`, its header, and how its cells are made.
pub struct RecordColumn {
    pub name: &'static str,
    pub header: &'static str,
    /// The unit of the numbers, if the header does not say it.
    pub unit: &'static str,
    /// Whether it is shown if no columns are chosen.
    pub is_default: bool,
    pub is_number: bool,
    cell: fn(&Entry<'_>) -> RecordCell,
}

/// A number in the unit of the record, and its text. Columns of text have no number; an unknown figure has neither.
type RecordCell = (Option<f64>, String);

impl RecordColumn {
    /// The column of this name, if there is one.
    pub fn find(name: &str) -> Option<&'static Self> {
        COLUMNS.iter().find(|column| column.name == name)
    }

    /// The column of a table with the same header.
    pub fn head(&self) -> Column {
        let column = Column::of(self.header, self.is_number);
        match self.name {
            P50 | HOST | "variant" | "backend" | "batch" | "ratio" => column.essential(),
            "interval" | "outputs" | "level" => column.minor(),
            _ => column,
        }
    }

    /// The value, in the unit of the record. `None` for a column of text and for an unknown value.
    pub fn value(&self, entry: &Entry<'_>) -> Option<f64> {
        (self.cell)(entry).0
    }

    /// The text of a cell; empty if the value is not known.
    pub fn text(&self, entry: &Entry<'_>) -> String {
        (self.cell)(entry).1
    }

    /// Whether one of these entries has a text.
    pub fn is_known(&self, entries: &[Entry<'_>]) -> bool {
        entries.iter().any(|entry| !self.text(entry).is_empty())
    }

    const fn by_default(self) -> Self {
        RecordColumn { is_default: true, ..self }
    }
}

/// The columns of these names in this order. Without names, and for `all`, a column is left out if no entry has a value.
pub fn chosen(names: &[String], entries: &[Entry<'_>]) -> Vec<&'static RecordColumn> {
    let of_name = |name: &String| -> Vec<&'static RecordColumn> {
        COLUMNS.iter().filter(|column| name == column.name || (name == ALL && column.is_known(entries))).collect()
    };
    match names {
        [] => COLUMNS.iter().filter(|column| column.is_default && column.is_known(entries)).collect(),
        names => names.iter().flat_map(of_name).collect(),
    }
}

/// Stands for all columns in which an entry has a value.
pub const ALL: &str = "all";

/// The names that `--columns` takes.
pub fn names() -> impl Iterator<Item = &'static str> {
    COLUMNS.iter().map(|column| column.name).chain([ALL])
}

/// The name of the column of the median latency.
pub const P50: &str = "p50";
/// The column of the machine, which tables of several machines begin with.
pub const HOST: &str = "host";
/// The name of the column of the status and its message, which the page shows and tables have as footnotes.
pub const STATUS: &str = "status";

const fn text(name: &'static str, cell: fn(&Entry<'_>) -> RecordCell) -> RecordColumn {
    RecordColumn { name, header: name, unit: "", is_default: false, is_number: false, cell }
}

const fn number(
    name: &'static str,
    header: &'static str,
    unit: &'static str,
    cell: fn(&Entry<'_>) -> RecordCell,
) -> RecordColumn {
    RecordColumn { name, header, unit, is_default: false, is_number: true, cell }
}

/// All columns, in the order in which they are shown.
pub static COLUMNS: &[RecordColumn] = &[
    text(HOST, |it| words(&it.record.host_id)),
    text("variant", |it| words(&it.record.variant)),
    text("backend", |it| words(&it.record.backend)).by_default(),
    text("device", |it| words(&it.record.device)).by_default(),
    text("dtype", |it| words(it.record.dtype.name())).by_default(),
    number("batch", "batch", "", |it| count(Some(it.record.batch_size))).by_default(),
    number("threads", "threads", "", |it| count(it.record.threads)),
    text("dims", |it| words(it.record.dims.as_deref().unwrap_or_default())),
    number(P50, "p50", "ms", p50).by_default(),
    number("interval", "± of p50", "fraction", half_interval).by_default(),
    number("p90", "p90", "ms", |it| bounded(it.record.latency_p90_ms, it.record.latency_p90_upper_ms)),
    number("p95", "p95", "ms", |it| bounded(it.record.latency_p95_ms, it.record.latency_p95_upper_ms)),
    number("p99", "p99", "ms", |it| bounded(it.record.latency_p99_ms, it.record.latency_p99_upper_ms)).by_default(),
    number("mean", "mean", "ms", |it| with(it.record.latency_mean_ms, latency)),
    number("samples", "samples/s", "", samples_per_second).by_default(),
    number("tokens", "tokens/s", "", |it| with(it.record.tokens_per_second, three_digits_of_any)).by_default(),
    number("first-token", "first token", "ms", |it| with(it.record.first_token_ms, latency)),
    number("memory", "memory", "MB", memory).by_default(),
    number("device-memory", "device memory", "MB", |it| with(it.record.device_memory_mb, megabytes)),
    number("host-memory", "host memory", "MB", |it| with(it.record.memory_mb, megabytes)),
    number("memory-growth", "memory growth", "MB", |it| with(it.record.memory_growth_mb, megabytes)),
    number("energy", "energy per sample", "J", |it| with(it.record.energy_j_per_sample, joules)),
    number("power", "power", "W", |it| with(it.record.power_w, |watts| format!("{} W", three_digits(watts)))),
    text("energy-source", energy_source),
    number("load", "load", "ms", |it| with(it.record.load_time_ms, latency)),
    number("trace", "trace", "ms", |it| with(it.record.trace_time_ms, latency)),
    number("compile", "compile", "ms", |it| with(it.record.compilation_time_ms, latency)),
    number("first-call", "first call", "ms", |it| with(it.record.first_inference_ms, latency)),
    number("preprocess", "preprocess", "ms", |it| with(it.record.preprocess_ms, latency)),
    number("h2d", "host to device", "ms", |it| with(it.record.h2d_ms, latency)),
    number("compute", "compute", "ms", |it| with(it.record.compute_ms, latency)),
    number("d2h", "device to host", "ms", |it| with(it.record.d2h_ms, latency)),
    number("postprocess", "postprocess", "ms", |it| with(it.record.postprocess_ms, latency)),
    number("gflops", "GFLOP/s", "", |it| with(it.record.gflops_per_second, three_digits)),
    number("roofline", "of the roofline", "%", |it| {
        with(it.record.roofline_percent, |percent| format!("{} %", fixed(percent, 0)))
    }),
    number("processes", "processes", "", |it| count(it.record.processes)),
    number("calls", "calls", "", |it| count(it.record.iterations)),
    number("disturbed", "disturbed samples", "fraction", |it| with(it.record.disturbed_share, percent)),
    number("accuracy-change", "accuracy change", "fraction", |it| {
        (it.record.accuracy_change, change_in_points(it.record).map(|it| it + " points").unwrap_or_default())
    }),
    number("top5", "top-5", "fraction", |it| with(it.record.accuracy_top5, percent)),
    number("agreement", "agreement", "fraction", |Entry { record, .. }| {
        fraction_of(record.agreement, agreement_interval(record), record.agreement_samples)
    }),
    number("cosine", "cosine", "", |it| with(it.record.output_cosine, |cosine| format!("{cosine:.5}"))),
    number("error", "error", "", |it| with(it.record.max_rel_error, |error| format!("{error:.0e}"))),
    text("outputs", |it| words(&outputs(it.record))).by_default(),
    number("size", "model size", "MB", |it| with(it.record.model_size_mb, megabytes)),
    number("parameters", "parameters", "", parameters),
    text("timed-samples", |it| words(it.record.timed_samples.as_deref().unwrap_or_default())),
    text("stopped-by", |it| words(it.record.stopped_by.as_deref().unwrap_or_default())),
    number("ratio", "p50 ÷ best", "", |it| with(it.ratio_to_best, |ratio| fixed(ratio, 2))).by_default(),
    text("level", |it| words(&Standing::of(&[*it]).level.to_string())).by_default(),
    number("accuracy", "accuracy", "fraction", |Entry { record, .. }| {
        fraction_of(record.accuracy, record.accuracy_lower.zip(record.accuracy_upper), record.accuracy_samples)
    })
    .by_default(),
    text(STATUS, |it| match it.record.status {
        Status::Ok => words("ok"),
        status => words(&format!("{status}: {}", short_message(it.record))),
    }),
];

/// What is known about the outputs: `right` by a reference, `agrees with` another backend, or `unverified`.
fn outputs(record: &Record) -> String {
    match (record.verified, record.verified_by.as_deref()) {
        _ if !record.status.is_measured() => String::new(),
        (Some(true), None | Some(BY_REFERENCE)) => "right".into(),
        (Some(true), Some(other)) => format!("agrees with {other}"),
        (Some(false), _) => "wrong".into(),
        (None, _) => "unverified".into(),
    }
}

fn words(text: &str) -> RecordCell {
    (None, text.to_owned())
}

fn with(value: Option<f64>, text: impl FnOnce(f64) -> String) -> RecordCell {
    (value, value.map(text).unwrap_or_default())
}

fn count(count: Option<usize>) -> RecordCell {
    with(count.map(|count| count as f64), |count| format!("{count:.0}"))
}

/// The median of a case that was measured and is not suspicious; otherwise its status, and no number to sort by.
fn p50(entry: &Entry<'_>) -> RecordCell {
    match entry.record.status {
        Status::Ok => with(entry.record.latency_p50_ms, latency),
        status => words(&status.to_string()),
    }
}

/// Half the width of the interval of the median between processes, as a fraction of the median.
fn half_interval(Entry { record, .. }: &Entry<'_>) -> RecordCell {
    let interval = record.latency_p50_interval_lower_ms.zip(record.latency_p50_interval_upper_ms);
    with(interval.map(|(lower, upper)| (upper / lower).sqrt() - 1.0), |share| format!("± {}", percent(share)))
}

/// Empty if calls read or make tokens, which the column `tokens` counts instead.
fn samples_per_second(entry: &Entry<'_>) -> RecordCell {
    with(entry.record.throughput_ips.filter(|_| entry.record.tokens_per_second.is_none()), three_digits_of_any)
}

/// A percentile; in parentheses if there were too few calls for its bound.
fn bounded(percentile: Option<f64>, upper: Option<f64>) -> RecordCell {
    with(percentile, |ms| if upper.is_some() { latency(ms) } else { format!("({})", latency(ms)) })
}

/// Whether the device has memory of its own, so that the host's says nothing about the model.
pub fn has_own_memory(record: &Record) -> bool {
    record.device_memory_mb.is_some()
        || (record.device_type.as_deref() == Some("gpu") && device_kind(&record.device) != "mps")
}

/// Peak memory in megabytes: of the device if it has its own, otherwise of a process with this case alone.
pub fn peak_memory(record: &Record) -> Option<f64> {
    if has_own_memory(record) {
        return record.device_memory_mb;
    }
    // The memory of a process that ran several cases says nothing about one of them.
    let is_shared = record.memory_kind.as_deref().is_some_and(|kind| kind.starts_with("shared-"));
    record.memory_mb.filter(|_| !is_shared)
}

fn memory(entry: &Entry<'_>) -> RecordCell {
    let place = if has_own_memory(entry.record) { " on device" } else { "" };
    with(peak_memory(entry.record), |peak| megabytes(peak) + place)
}

/// What was measured. Empty if nothing could be measured; the record then has `none: …` with the reason.
fn energy_source(entry: &Entry<'_>) -> RecordCell {
    words(entry.record.energy_kind.as_deref().filter(|kind| !kind.starts_with("none")).unwrap_or_default())
}

/// `25.6 M`; `25.6 M, 41 % not 0` if many are 0.
fn parameters(entry: &Entry<'_>) -> RecordCell {
    let Some(count) = entry.record.parameters else { return RecordCell::default() };
    let nonzero = entry.record.nonzero_parameters.map(|nonzero| nonzero as f64 / count.max(1) as f64);
    let nonzero = nonzero.filter(|nonzero| *nonzero < 0.995).map(|nonzero| format!(", {:.0} % not 0", 100.0 * nonzero));
    (Some(count as f64), rounded(count) + &nonzero.unwrap_or_default())
}

/// `98.2 % (96.5 … 99.2) of 450`.
fn fraction_of(fraction: Option<f64>, interval: Option<(f64, f64)>, count: Option<u64>) -> RecordCell {
    let interval =
        interval.map(|(lower, upper)| format!(" ({} … {})", fixed(100.0 * lower, 1), fixed(100.0 * upper, 1)));
    let count = count.map(|count| format!(" of {count}"));
    with(fraction, |fraction| percent(fraction) + &interval.unwrap_or_default() + &count.unwrap_or_default())
}

/// The 95 % interval of `agreement`.
fn agreement_interval(record: &Record) -> Option<(f64, f64)> {
    let (agreement, samples) = record.agreement.zip(record.agreement_samples)?;
    let is_fraction = (0.0..=1.0).contains(&agreement);
    is_fraction.then(|| proportion_interval((agreement * samples as f64).round() as u64, samples, 0.95))?
}

/// The change of the accuracy in percentage points: `−0.2 (−1.4 … +1.0)`.
pub fn change_in_points(record: &Record) -> Option<String> {
    let points = |difference: f64| signed(100.0 * difference, 1);
    let change = points(record.accuracy_change?);
    Some(match record.accuracy_change_lower.zip(record.accuracy_change_upper) {
        Some((lower, upper)) => format!("{change} ({} … {})", points(lower), points(upper)),
        None => change,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::record;

    fn cell(name: &str, record: &Record) -> String {
        let column = COLUMNS.iter().find(|column| column.name == name).unwrap();
        column.text(&Entry { record, ratio_to_best: Some(1.0) })
    }

    #[test]
    fn the_memory_of_a_process_of_several_cases_is_of_none_of_them() {
        let of = |kind: &str| Record {
            memory_mb: Some(100.0),
            memory_kind: Some(kind.into()),
            ..record("m", "ort", 1, Some(1.0))
        };
        let found = ["own-process-peak-rss", "shared-process-peak-rss"].map(|kind| peak_memory(&of(kind)));
        assert_eq!(found, [Some(100.0), None]);
    }

    #[test]
    fn a_device_with_memory_of_its_own_never_shows_the_hosts() {
        let host = Record { memory_mb: Some(100.0), ..record("m", "ort", 1, Some(1.0)) };
        let gpu = Record { device: "cuda".into(), device_type: Some("gpu".into()), ..host.clone() };
        let known = Record { device_memory_mb: Some(512.0), ..gpu.clone() };
        let shared = Record { device: "mps".into(), ..gpu.clone() };
        let memory = |record| cell("memory", record);
        assert_eq!([memory(&host), memory(&shared)], ["100 MB", "100 MB"]);
        assert_eq!([memory(&gpu), memory(&known)], ["", "512 MB on device"]);
        assert_eq!(cell("host-memory", &known), "100 MB");
    }

    #[test]
    fn names_are_unique_and_all_means_what_is_known() {
        let names: std::collections::BTreeSet<_> = names().collect();
        assert_eq!(names.len(), COLUMNS.len() + 1);
        let record = Record { power_w: Some(12.0), ..record("m", "ort", 1, Some(1.0)) };
        let entries = [Entry { record: &record, ratio_to_best: Some(1.0) }];
        let all: Vec<&str> = chosen(&[ALL.into()], &entries).iter().map(|column| column.name).collect();
        assert!(all.contains(&"power") && !all.contains(&"energy"), "{all:?}");
        let judged = Record { accuracy: Some(0.5), ..record.clone() };
        let of_judged = [Entry { record: &judged, ratio_to_best: None }];
        let is_usual = |entries: &[Entry<'_>]| chosen(&[], entries).iter().any(|column| column.name == "accuracy");
        assert!(is_usual(&of_judged) && !is_usual(&entries));
        let two: Vec<&str> = chosen(&["p95".into(), "load".into()], &entries).iter().map(|it| it.name).collect();
        assert_eq!(two, ["p95", "load"]);
    }

    #[test]
    fn the_short_names_of_queries_are_columns_of_reports() {
        for &(short, name) in crate::history::SHORT_NAMES {
            let mut fields = serde_json::to_value(record("m", "ort", 1, None)).unwrap();
            fields[name] = 7.into();
            let record: Record = serde_json::from_value(fields).unwrap();
            let column = RecordColumn::find(short).unwrap_or_else(|| panic!("{short}"));
            assert_eq!(column.value(&Entry { record: &record, ratio_to_best: None }), Some(7.0), "{short} of {name}");
        }
    }

    #[test]
    fn a_suspicious_case_has_its_status_for_a_median_and_no_number_to_sort_by() {
        let record = Record { status: Status::Suspicious, ..record("m", "ort", 1, Some(1.0)) };
        let column = COLUMNS.iter().find(|column| column.name == P50).unwrap();
        let entry = Entry { record: &record, ratio_to_best: None };
        assert_eq!((column.text(&entry).as_str(), column.value(&entry)), ("suspicious", None));
    }

    #[test]
    fn cells_have_units() {
        let record = Record {
            energy_j_per_sample: Some(0.0021),
            latency_p95_ms: Some(2.0),
            first_token_ms: Some(0.5),
            ..record("m", "ort", 1, Some(1.0))
        };
        let cells = ["energy", "p95", "first-token", "load", "interval"].map(|name| cell(name, &record));
        assert_eq!(cells, ["2.10 mJ", "(2.00 ms)", "500 µs", "", ""]);
        let bounds = [0.98, 1.0 / 0.98].map(Some);
        let [latency_p50_interval_lower_ms, latency_p50_interval_upper_ms] = bounds;
        let several = Record { latency_p50_interval_lower_ms, latency_p50_interval_upper_ms, ..record };
        assert_eq!(cell("interval", &several), "± 2.0 %");
        // A picture that takes a minute.
        let slow = Record { throughput_ips: Some(1.0 / 60.0), tokens_per_second: None, ..several };
        assert_eq!(cell("samples", &slow), "0.0167");
        // Copied numbers are those of the record.
        let units = ["energy", "p95", "host-memory", "interval", "roofline", "samples"];
        let units = units.map(|name| RecordColumn::find(name).unwrap().unit);
        assert_eq!(units, ["J", "ms", "MB", "fraction", "%", ""]);
    }

    #[test]
    fn even_if_all_of_64_samples_agree_no_small_loss_is_shown() {
        let of = |agreement, agreement_samples| {
            let agreement = Some(agreement);
            agreement_interval(&Record { agreement, agreement_samples, ..record("m", "ort", 1, None) })
        };
        let (lower, upper) = of(1.0, Some(64)).unwrap();
        assert!((lower - 0.944).abs() < 1e-3 && upper == 1.0, "{lower} {upper}");
        assert_eq!([of(f64::NAN, Some(64)), of(1.5, Some(64)), of(1.0, None), of(1.0, Some(0))], [None; 4]);
    }
}
