//! The best case of each device, machine, backend, dtype or model, side by side.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use super::advice::advise;
use super::variants_output::title_of;
use super::{Goal, Options};
use crate::report::columns::RecordColumn;
use crate::report::ranking::Entry;
use crate::report::schema_of;
use crate::report::table::{BEST, Cell, Column, Table};
use crate::run_data::{Metric, Record};

/// What each row of the table is the best of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Per {
    Backend,
    Device,
    Dtype,
    Machine,
    Model,
}

impl Per {
    pub(super) fn of(self, record: &Record) -> String {
        match self {
            Per::Backend => record.backend.clone(),
            Per::Device => record.device.clone(),
            Per::Dtype => record.dtype.to_string(),
            Per::Machine => record.host_id.clone(),
            Per::Model => record.model.clone(),
        }
    }
}

const COLUMNS: &str = "variant,backend,device,dtype,batch,p50,p99,samples,tokens,gflops,accuracy,memory,energy";

/// The best case of a device, machine, backend, dtype or model, for one kind of work.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct BestCase {
    /// The name of that device, machine, backend, dtype or model.
    pub best_of: String,
    /// The model, phase and lengths.
    pub work: String,
    /// The quantity that the goal minimises: milliseconds, the reciprocal of the rate, joules, the price, or megabytes.
    pub quantity: Option<f64>,
    /// The record of the case, with the times of all runs that count.
    pub record: Record,
}

/// The best case for each value of `per` and each kind of work with a recommendation, the best by the goal first. An
/// empty model name stands for all models.
pub fn side_by_side(records: &[Record], metrics: &[Metric], options: &Options, per: Per) -> Vec<BestCase> {
    let is_of_model = |record: &&Record| options.model.is_empty() || record.model == options.model;
    let of_models: Vec<&Record> = records.iter().filter(is_of_model).collect();
    let chosen = of_models.iter().filter(|record| options.may_choose(record));
    let groups: BTreeSet<(String, &str)> = chosen.map(|record| (per.of(record), record.model.as_str())).collect();
    let mut found = Vec::new();
    for (best_of, model) in groups {
        let options = Options { model: model.to_owned(), among: Some((per, best_of.clone())), ..options.clone() };
        for advice in advise(records, metrics, &options).unwrap_or_default() {
            let Some(record) = &advice.pooled else { continue };
            found.push(BestCase {
                best_of: best_of.clone(),
                work: title_of(&record.case(), advice.input_shape.as_ref()),
                quantity: options.quantity(options.goal, record),
                record: record.clone(),
            });
        }
    }
    let quantity = |it: &BestCase| it.quantity.unwrap_or(f64::INFINITY);
    found.sort_by(|one, other| quantity(one).total_cmp(&quantity(other)));
    found
}

/// The cases of [`side_by_side`] as a table.
pub fn best_table(found: &[BestCase], goal: Goal, per: Per) -> Table {
    let entries: Vec<Entry<'_>> = found.iter().map(|it| Entry { record: &it.record, ratio_to_best: None }).collect();
    let columns = COLUMNS.split(',').filter_map(RecordColumn::find).filter(|column| column.is_known(&entries));
    let columns: Vec<&RecordColumn> = columns.collect();
    let own = [per.to_string(), "work".into(), "family".into()].map(Column::text);
    let of_goal: &[&str] = match goal {
        Goal::Throughput => &["samples/s", "tokens/s"],
        Goal::Energy => &["energy per sample"],
        Goal::Memory => &["memory"],
        // The latency is always shown, and the others have no column.
        Goal::Latency | Goal::Cost | Goal::Size => &[],
    };
    let mut table = Table::new(own.into_iter().chain(columns.iter().map(|column| column.head())))
        .essential(&["work"])
        .essential(of_goal)
        .minor(&["family"]);
    let mut works = BTreeSet::new();
    for (place, (best, entry)) in found.iter().zip(&entries).enumerate() {
        let cells = [&best.best_of, &best.work, &best.record.family].map(|text| Cell::from(text.clone()));
        let of_record = columns.iter().map(|column| Cell::from(column.text(entry)));
        let row = table.row(cells.into_iter().chain(of_record));
        // Each kind of work has only one best case.
        let is_best = if per == Per::Model { place == 0 } else { works.insert(&best.work) };
        if is_best {
            row.mark(BEST);
        }
    }
    table.footnote(format!("{BEST} the best for {goal}; each row is what `recommend` chooses for this {per}"));
    table
}

/// The JSON Schema of [`side_by_side`].
pub fn best_schema() -> String {
    schema_of::<Vec<BestCase>>("inferbench recommend --per: the best cases side by side")
}
