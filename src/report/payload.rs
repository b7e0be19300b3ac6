//! Everything that a report with charts shows, in one serialisable value: the page's program makes all charts from it,
//! in a browser and for `--charts`. Only the program reads the fields, so they are named where they are made.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::{Value, json};

use super::columns::{ALL, RecordColumn, STATUS, chosen, peak_memory};
use super::compatibility::{RULE, Standing};
use super::fleet::Fleet;
use super::load::CurvePoint;
use super::machine_facts::facts;
use super::metrics;
use super::ranking::{Entry, best_on, titles};
use super::records::{equality, not_reached};
use super::selection::{Measured, NamedMachine, ReportedRun, Shown};
use super::trend::{TrendPoint, trend};
use crate::backend::registry;
use crate::compare::Noise;
use crate::definition::{Case, Dims, Status};
use crate::load::DEFINITIONS;
use crate::run_data::Record;

/// A part of the ids of cases that a server computes.
const OF_A_SERVER: &str = "/http-";

/// The columns of records that the program reads; cells of the table have the other columns as text.
const COLUMNS: &str = "backend,model,variant,family,modality,phase,device,dtype,batch_size,status,message,verified,\
                       max_rel_error,latency_p50_ms,latency_p50_upper_ms,latency_p90_ms,latency_p90_upper_ms,\
                       latency_p95_ms,latency_p95_upper_ms,latency_p99_ms,latency_p99_upper_ms,throughput_ips,\
                       throughput_lower_ips,throughput_upper_ips,tokens_per_second,model_size_mb,accuracy,\
                       output_cosine,verified_by,data_source";

const OF_SEVERAL_THREADS: &str =
    " Cases were measured with different numbers of threads, and ratios between these may be due to that.";

/// A title names at most so many machines.
const MOST_NAMED: usize = 3;

/// What is known about machines besides their runs.
pub struct Known<'a> {
    /// A line about the smallest change that can be shown on a host.
    pub resolution: &'a dyn Fn(&str) -> String,
    /// How much measurements of the same program differ on a host.
    pub noise: &'a dyn Fn(&str) -> Noise,
    /// All machines side by side, if there are several.
    pub fleet: Option<&'a Fleet>,
}

/// A whole report.
#[derive(Clone, Debug, Serialize)]
pub struct Payload {
    pub title: String,
    /// All runs, the newest first, with those that only the trend shows.
    runs: Vec<Value>,
    /// A line for each run without records, with the cases that it did not reach.
    unmeasured: Vec<String>,
    machines: Vec<Value>,
    /// The columns of the table of cases that have values.
    columns: Vec<Value>,
    /// Records, with figures that follow from all of them and a cell for each column.
    cases: Vec<Value>,
    /// The machine and the id of each case.
    #[serde(skip)]
    places: Vec<(String, String)>,
    /// A note about all cases; empty if there is none.
    note: &'static str,
    /// How well each model works on each backend, device and dtype, and the rule of the levels.
    matrix: Vec<Value>,
    rule: &'static str,
    /// All machines side by side, with sentences about them; null if there is one.
    fleet: Value,
    /// What the figures of language models under load mean.
    definitions: String,
    /// All measurements of the cases, run by run.
    trend: Vec<TrendPoint>,
    /// The colour of each backend on white, and its lighter form on black.
    colours: Vec<(String, [&'static str; 2])>,
}

impl Payload {
    /// The payload of a page about these runs.
    pub fn new<'a>(shown: &Shown<'a>, known: &Known<'_>) -> Self {
        let equal = shown.equal_machines();
        let machine = |record: &'a Record| *equal.get(record.host_id.as_str()).unwrap_or(&record.host_id.as_str());
        let ratios = best_on(shown.cases.iter().map(|case| case.record), machine);
        let entry = |(case, ratio_to_best): (&Measured<'a>, Option<f64>)| Entry { record: case.record, ratio_to_best };
        let entries: Vec<Entry<'_>> = shown.cases.iter().zip(ratios).map(entry).collect();
        let columns = chosen(&[ALL.to_owned()], &entries);
        let machine = |(host_id, machine): (&&str, &NamedMachine<'_>)| {
            json!({
                "name": machine.name,
                "resolution": (known.resolution)(host_id),
                "facts": facts(host_id, machine.facts),
            })
        };
        let column = |column: &&RecordColumn| {
            json!({
                "name": column.name,
                "title": column.header,
                "unit": column.unit,
                "is_number": column.is_number,
                // Whether it is shown before a reader chooses.
                "is_default": column.is_default || column.name == STATUS,
            })
        };
        let backends = shown.cases.iter().map(|case| case.record.backend.as_str());
        let colours = registry::colours(backends).into_iter();
        let all_metrics = || shown.cases.iter().flat_map(|case| case.metrics.iter().copied());
        let names = metrics::names(all_metrics());
        let of_metric = |name: &&str| {
            let unit =
                all_metrics().find(|it| it.metric == *name).map(|it| it.unit.as_str()).filter(|unit| unit != name);
            json!({ "name": name, "title": metrics::title(name), "unit": unit, "is_number": true, "is_default": true })
        };
        let titles = titles(shown.cases.iter().map(|case| case.record));
        let case = |((case, entry), title): ((&Measured<'a>, &Entry<'_>), String)| {
            let mut row = case_row(shown, case, entry, &columns, &names);
            row["group"] = title.into();
            row
        };
        Payload {
            title: title(shown, known.fleet),
            runs: shown.runs.iter().rev().filter_map(|run| run_row(shown, run)).collect(),
            unmeasured: shown.unmeasured.iter().filter_map(|run| unmeasured(run)).collect(),
            machines: shown.machines.iter().map(machine).collect(),
            cases: shown.cases.iter().zip(&entries).zip(titles.iter().cloned()).map(case).collect(),
            places: shown.cases.iter().map(|it| (it.record.host_id.clone(), it.record.case().to_string())).collect(),
            columns: columns.iter().map(column).chain(names.iter().map(of_metric)).collect(),
            note: if has_several_threads(&shown.cases) { OF_SEVERAL_THREADS } else { "" },
            matrix: matrix(shown, &entries, &titles),
            rule: RULE,
            fleet: known.fleet.map(|known| fleet(known, shown)).unwrap_or_default(),
            definitions: DEFINITIONS.iter().map(|(term, meaning)| format!("{term}: {meaning}. ")).collect(),
            trend: trend(shown, known.noise),
            colours: colours.map(|(name, colour)| (name.to_owned(), colour)).collect(),
        }
    }

    /// Gives each case that was put under load the points of its curve of rate and latency. `curves` is by machine and
    /// id of the case.
    pub fn give_curves(&mut self, curves: &BTreeMap<(String, String), Vec<CurvePoint>>) {
        for (case, place) in self.cases.iter_mut().zip(&self.places) {
            if let Some(curve) = curves.get(place) {
                case["load"] = json!(curve);
            }
        }
        // The curve of a server goes to the first case that does the same work on its machine.
        for ((host_id, id), points) in curves.iter().filter(|((_, id), _)| id.contains(OF_A_SERVER)) {
            let work = |id: &str| Some((id.split_once('/')?.0.to_owned(), id.rsplit_once('/')?.1.to_owned()));
            let is_same = |(own_host, own_id): &(String, String)| own_host == host_id && work(own_id) == work(id);
            let Some(case) = self.places.iter().position(is_same).map(|place| &mut self.cases[place]) else { continue };
            let mut all = case["load"].as_array().cloned().unwrap_or_default();
            all.extend(points.iter().map(|point| json!(point)));
            case["load"] = Value::Array(all);
        }
    }

    /// Gives each case that has a profile the link to its page. `pages` is by machine and id of the case.
    pub fn link_profiles(&mut self, pages: &BTreeMap<(String, String), String>) {
        for (case, place) in self.cases.iter_mut().zip(&self.places) {
            if let Some(page) = pages.get(place) {
                case["profile"] = page.as_str().into();
            }
        }
    }
}

/// Whether cases of one machine were measured with different numbers of threads.
fn has_several_threads(cases: &[Measured<'_>]) -> bool {
    let mut threads: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for case in cases {
        threads.entry(&case.record.host_id).or_default().extend(case.record.threads);
    }
    threads.values().any(|it| it.len() > 1)
}

fn title(shown: &Shown<'_>, fleet: Option<&Fleet>) -> String {
    if shown.cases.is_empty() {
        return "Inference benchmarks".to_owned();
    }
    let suites: BTreeSet<&str> = shown.cases.iter().map(|case| case.record.suite.as_str()).collect();
    let machines: Vec<&str> = shown.machines.values().map(|machine| machine.name.as_str()).collect();
    let count = fleet.map_or(0, |fleet| fleet.machines.len()).max(machines.len());
    let machines = if count > MOST_NAMED { format!("{count} machines") } else { machines.join(", ") };
    format!("Inference benchmarks: suite {} on {machines}", Vec::from_iter(suites).join(", "))
}

fn fleet(fleet: &Fleet, shown: &Shown<'_>) -> Value {
    let mut value = json!(fleet);
    value["has_same_cases"] = fleet.has_same_cases().into();
    value["is_large"] = fleet.is_large().into();
    let equality = shown.runs.iter().filter_map(|run| run.equal_machines).map(equality);
    value["lines"] = fleet.lines().into_iter().chain(equality).collect();
    value
}

fn unmeasured(run: &ReportedRun) -> Option<String> {
    Some(format!("run {}: {}", run.run_id(), not_reached(&run.not_reached)?))
}

fn run_row(shown: &Shown<'_>, run: &ReportedRun) -> Option<Value> {
    let first = run.records.first()?;
    let machine = shown.machines.get(first.host_id.as_str());
    // Runs that only the trend shows may lack cases.
    let is_shown = shown.cases.iter().any(|case| case.record.run_id == first.run_id);
    Some(json!({
        "run_id": first.run_id,
        "started": first.timestamp.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        "commit": first.git_commit,
        "is_dirty": first.git_dirty,
        "suite": first.suite,
        "machine": machine.map_or(&first.host_id, |machine| &machine.name),
        "cases": run.records.len() + run.not_reached.len(),
        "not_reached": not_reached(&run.not_reached).filter(|_| is_shown),
        "measured": run.records.iter().filter(|record| record.status == Status::Ok).count(),
    }))
}

/// The known columns of the record, and what the record alone does not say.
fn case_row(
    shown: &Shown<'_>,
    case: &Measured<'_>,
    entry: &Entry<'_>,
    columns: &[&RecordColumn],
    names: &[&str],
) -> Value {
    // A number to sort by with its text, or only a text.
    let cell = |column: &&RecordColumn| match column.value(entry) {
        Some(value) => json!([value, column.text(entry)]),
        None => column.text(entry).into(),
    };
    let metric = |name: &&str| match case.metrics.iter().find(|metric| metric.metric == *name) {
        Some(metric) => json!([metric.value, metrics::text(metric)]),
        None => "".into(),
    };
    let record = json!(case.record);
    let mut row: Value = COLUMNS.split(',').map(|name| (name, record[name].clone())).collect();
    row["id"] = case.record.case().to_string().into();
    row["machine"] = shown.machines[case.record.host_id.as_str()].name.as_str().into();
    row["ratio_to_best"] = json!(entry.ratio_to_best);
    put_size(&mut row, &case.record.case());
    row["kl_divergence"] = json!(case.metrics.iter().find(|it| it.metric == "kl_divergence").map(|it| it.value));
    row["peak_memory_mb"] = json!(peak_memory(case.record));
    // Pairs of a fraction of the calls and milliseconds; empty if they were not kept.
    row["quantiles_ms"] = json!(case.distribution.map(|kept| kept.quantiles_ms.as_slice()).unwrap_or_default());
    row["cells"] = columns.iter().map(cell).chain(names.iter().map(metric)).collect();
    if let Value::Object(row) = &mut row {
        row.retain(|_, value| !value.is_null());
    }
    row
}

/// The size of the input, if the case says one: the product of the sizes and the sequence length, what these are, and the group that the case
/// would have without them.
fn put_size(row: &mut Value, case: &Case) {
    let lengths = case.sequence_length.map(|length| ("sequence length", length));
    let sizes: Vec<(&str, usize)> =
        case.dims.0.iter().map(|(name, size)| (name.as_str(), *size)).chain(lengths).collect();
    if sizes.is_empty() {
        return;
    }
    let join = |text: fn(&(&str, usize)) -> String| sizes.iter().map(text).collect::<Vec<_>>().join(" × ");
    row["size"] = sizes.iter().map(|(_, size)| *size as u64).product::<u64>().into();
    row["size_names"] = join(|(name, _)| (*name).to_owned()).into();
    row["sizes"] = join(|(name, size)| format!("{name} {size}")).into();
    let without = Case { dims: Dims::default(), sequence_length: None, ..case.clone() };
    row["of_any_size"] = without.benchmark_id().group.into();
}

/// The cases of each model on each configuration and machine, with the level, or the status if no case is right.
fn matrix(shown: &Shown<'_>, entries: &[Entry<'_>], titles: &[String]) -> Vec<Value> {
    let mut members: IndexMap<(&str, String, &str), Vec<usize>> = IndexMap::new();
    for (index, (case, title)) in shown.cases.iter().zip(titles).enumerate() {
        let function = case.record.case().benchmark_id().function;
        members.entry((title, function, &case.record.host_id)).or_default().push(index);
    }
    let cell = |cases: Vec<usize>| {
        let standing = Standing::of(&cases.iter().map(|index| entries[*index]).collect::<Vec<_>>());
        let status = standing.status.filter(|_| standing.right == 0);
        let kind = status.map_or_else(|| standing.level.to_string(), |status| status.to_string());
        json!({ "cases": cases, "kind": kind, "text": standing.short_text() })
    };
    members.into_values().map(cell).collect()
}
