//! The columns of all reports: terminal, Markdown and the page show the same, and `--columns` chooses among them.
//!
//! A new column of the record needs one line in [`COLUMNS`] to be shown everywhere.

use super::compatibility::Standing;
use super::ranking::{Entry, latency, percent, short_message, three_digits};
use crate::definition::{Status, device_kind};
use crate::run_data::Record;

/// A column: its name for `--columns`, its header, and how its cells are made.
pub struct RecordColumn {
    pub name: &'static str,
    pub header: &'static str,
    /// Whether it is shown if no columns are chosen.
    pub is_default: bool,
    source: Source,
}

/// Where a cell comes from.
enum Source {
    Text(fn(&Entry<'_>) -> String),
    Number {
        value: fn(&Entry<'_>) -> Option<f64>,
        text: fn(f64) -> String,
    },
    /// A number whose text needs more of the record than the number.
    Described {
        value: fn(&Entry<'_>) -> Option<f64>,
        text: fn(&Entry<'_>) -> String,
    },
}

impl RecordColumn {
    /// Whether its values are numbers.
    pub fn is_number(&self) -> bool {
        !matches!(self.source, Source::Text(_))
    }

    /// The value, in the unit of the record. `None` if the column is one of text or the value is not known.
    pub fn value(&self, entry: &Entry<'_>) -> Option<f64> {
        match self.source {
            Source::Text(_) => None,
            Source::Number { value, .. } | Source::Described { value, .. } => value(entry),
        }
    }

    /// The text of a cell; empty if the value is not known.
    pub fn text(&self, entry: &Entry<'_>) -> String {
        match self.source {
            Source::Text(text) => text(entry),
            Source::Number { value, text } => value(entry).map(text).unwrap_or_default(),
            Source::Described { text, .. } => text(entry),
        }
    }
}

/// The columns of these names in this order. Without names, and for `all`, a column is left out if no entry has a value.
pub fn chosen(names: &[String], entries: &[Entry<'_>]) -> Vec<&'static RecordColumn> {
    let is_known = |column: &&RecordColumn| entries.iter().any(|entry| !column.text(entry).is_empty());
    let of_name = |name: &String| -> Vec<&'static RecordColumn> {
        COLUMNS.iter().filter(|column| name == column.name || (name == ALL && is_known(column))).collect()
    };
    match names {
        [] => COLUMNS.iter().filter(|column| column.is_default).filter(is_known).collect(),
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
/// The name of the column of the status and its message, which the page shows and tables have as footnotes.
pub const STATUS: &str = "status";

type Value = fn(&Entry<'_>) -> Option<f64>;

const fn text(name: &'static str, cell: fn(&Entry<'_>) -> String) -> RecordColumn {
    RecordColumn { name, header: name, is_default: false, source: Source::Text(cell) }
}

const fn number(name: &'static str, header: &'static str, value: Value, text: fn(f64) -> String) -> RecordColumn {
    RecordColumn { name, header, is_default: false, source: Source::Number { value, text } }
}

const fn described(
    name: &'static str,
    header: &'static str,
    value: Value,
    text: fn(&Entry<'_>) -> String,
) -> RecordColumn {
    RecordColumn { name, header, is_default: false, source: Source::Described { value, text } }
}

impl RecordColumn {
    const fn by_default(self) -> Self {
        RecordColumn { is_default: true, ..self }
    }
}

/// All columns, in the order in which they are shown.
pub static COLUMNS: [RecordColumn; 40] = [
    text("backend", |it| it.record.backend.clone()).by_default(),
    text("device", |it| it.record.device.clone()).by_default(),
    text("dtype", |it| it.record.dtype.to_string()).by_default(),
    number("batch", "batch", |it| Some(it.record.batch_size as f64), count).by_default(),
    described(P50, "p50", right_median, p50).by_default(),
    number("interval", "± of p50", half_interval, |share| format!("± {}", percent(share))).by_default(),
    number("p90", "p90", |it| it.record.latency_p90_ms, milliseconds),
    described(
        "p95",
        "p95",
        |it| it.record.latency_p95_ms,
        |it| bounded(it.record.latency_p95_ms, it.record.latency_p95_upper_ms),
    ),
    described(
        "p99",
        "p99",
        |it| it.record.latency_p99_ms,
        |it| bounded(it.record.latency_p99_ms, it.record.latency_p99_upper_ms),
    )
    .by_default(),
    number("mean", "mean", |it| it.record.latency_mean_ms, milliseconds),
    number("samples", "samples/s", samples_per_second, three_digits).by_default(),
    number("tokens", "tokens/s", |it| it.record.tokens_per_second, three_digits).by_default(),
    number("first-token", "first token", |it| it.record.first_token_ms, milliseconds),
    described("memory", "memory", memory, memory_text).by_default(),
    number("device-memory", "device memory", |it| it.record.device_memory_mb, megabytes),
    number("host-memory", "host memory", |it| it.record.memory_mb, megabytes),
    number("memory-growth", "memory growth", |it| it.record.memory_growth_mb, megabytes),
    number("energy", "energy per sample", |it| it.record.energy_j_per_sample, joules),
    number("power", "power", |it| it.record.power_w, |watts| format!("{} W", three_digits(watts))),
    text("energy-source", energy_source),
    number("load", "load", |it| it.record.load_time_ms, milliseconds),
    number("compile", "compile", |it| it.record.compilation_time_ms, milliseconds),
    number("first-call", "first call", |it| it.record.first_inference_ms, milliseconds),
    number("h2d", "host to device", |it| it.record.h2d_ms, milliseconds),
    number("compute", "compute", |it| it.record.compute_ms, milliseconds),
    number("d2h", "device to host", |it| it.record.d2h_ms, milliseconds),
    number("gflops", "GFLOP/s", |it| it.record.gflops_per_second, three_digits),
    number("roofline", "of the roofline", |it| it.record.roofline_percent, |percent| format!("{percent:.0} %")),
    number("processes", "processes", |it| it.record.processes.map(|processes| processes as f64), count),
    number("calls", "calls", |it| it.record.iterations.map(|calls| calls as f64), count),
    number("disturbed", "disturbed samples", |it| it.record.disturbed_share, percent),
    number("accuracy", "accuracy", |it| it.record.accuracy, percent),
    number("agreement", "agreement", |it| it.record.agreement, percent),
    number("error", "error", |it| it.record.max_rel_error, |error| format!("{error:.0e}")),
    number("size", "model size", |it| it.record.model_size_mb, megabytes),
    number("parameters", "parameters", |it| it.record.parameters.map(|count| count as f64), count),
    text("stopped-by", |it| it.record.stopped_by.clone().unwrap_or_default()),
    number("ratio", "p50 ÷ best", |it| it.ratio_to_best, |ratio| format!("{ratio:.2}")).by_default(),
    text("level", |it| Standing::of_record(it.record, it.ratio_to_best).level.to_string()).by_default(),
    text(STATUS, |it| match it.record.status {
        Status::Ok => "ok".to_owned(),
        status => format!("{status}: {}", short_message(it.record)),
    }),
];

/// The median of a case that was measured and is not suspicious: the page sorts by it.
fn right_median(entry: &Entry<'_>) -> Option<f64> {
    entry.record.latency_p50_ms.filter(|_| entry.record.status == Status::Ok)
}

/// The median; the status if there is none.
fn p50(entry: &Entry<'_>) -> String {
    match entry.record.status {
        Status::Ok => latency(entry.record.latency_p50_ms),
        status => status.to_string(),
    }
}

/// Half the width of the interval of the median between processes, as a fraction of the median.
fn half_interval(entry: &Entry<'_>) -> Option<f64> {
    let (lower, upper) = entry.record.latency_p50_interval_lower_ms.zip(entry.record.latency_p50_interval_upper_ms)?;
    Some((upper / lower).sqrt() - 1.0)
}

/// Where calls read or make tokens, these are counted instead.
fn samples_per_second(entry: &Entry<'_>) -> Option<f64> {
    entry.record.throughput_ips.filter(|_| entry.record.tokens_per_second.is_none())
}

/// A percentile; in parentheses if there were too few calls for its bound.
fn bounded(percentile: Option<f64>, upper: Option<f64>) -> String {
    let shown = latency(percentile);
    if upper.is_some() || shown.is_empty() { shown } else { format!("({shown})") }
}

/// Whether the device has memory of its own, so that the host's says nothing about the model.
pub fn has_own_memory(record: &Record) -> bool {
    record.device_memory_mb.is_some()
        || (record.device_type.as_deref() == Some("gpu") && device_kind(&record.device) != "mps")
}

/// Peak memory in megabytes: of the device if it has its own, otherwise of the process.
pub fn peak_memory(record: &Record) -> Option<f64> {
    if has_own_memory(record) { record.device_memory_mb } else { record.memory_mb }
}

fn memory(entry: &Entry<'_>) -> Option<f64> {
    peak_memory(entry.record)
}

fn memory_text(entry: &Entry<'_>) -> String {
    let place = if has_own_memory(entry.record) { " on device" } else { "" };
    memory(entry).map(|peak| megabytes(peak) + place).unwrap_or_default()
}

/// What was measured; empty if nothing could be, for a reason that the record gives as `none: …`.
fn energy_source(entry: &Entry<'_>) -> String {
    entry.record.energy_kind.clone().filter(|kind| !kind.starts_with("none")).unwrap_or_default()
}

fn milliseconds(ms: f64) -> String {
    latency(Some(ms))
}

fn megabytes(size: f64) -> String {
    if size < 10.0 { format!("{} MB", three_digits(size)) } else { format!("{size:.0} MB") }
}

fn joules(energy: f64) -> String {
    match energy {
        _ if energy < 1e-3 => format!("{} µJ", three_digits(energy * 1e6)),
        _ if energy < 1.0 => format!("{} mJ", three_digits(energy * 1e3)),
        _ => format!("{} J", three_digits(energy)),
    }
}

fn count(count: f64) -> String {
    format!("{count:.0}")
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
        let two: Vec<&str> = chosen(&["p95".into(), "load".into()], &entries).iter().map(|it| it.name).collect();
        assert_eq!(two, ["p95", "load"]);
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
    }
}
