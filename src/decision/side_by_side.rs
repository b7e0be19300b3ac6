//! The best case of each device, machine, backend, dtype or model, side by side.

use std::collections::BTreeSet;

use super::Options;
use super::advice::advise;
use crate::report::columns::RecordColumn;
use crate::report::ranking::Entry;
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
    fn of(self, record: &Record) -> String {
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

/// A row for each value and kind of work that something can be recommended of, the best by the goal first. An empty name of a model
/// stands for all of them.
pub fn side_by_side(records: &[Record], metrics: &[Metric], options: &Options, per: Per) -> Table {
    let is_of_model = |record: &&Record| options.model.is_empty() || record.model == options.model;
    let of_models: Vec<&Record> = records.iter().filter(is_of_model).collect();
    let groups: BTreeSet<(String, &str)> =
        of_models.iter().map(|record| (per.of(record), record.model.as_str())).collect();
    let mut found: Vec<(f64, String, String, &Record)> = Vec::new();
    for (value, model) in groups {
        let own: Vec<Record> =
            of_models.iter().filter(|record| per.of(record) == value).map(|record| (*record).clone()).collect();
        let options = Options { model: model.to_owned(), ..options.clone() };
        for advice in advise(&own, metrics, &options).unwrap_or_default() {
            let is_meant = |record: &&&Record| {
                Some(&record.case_id) == advice.case_id.as_ref() && Some(&record.host_id) == advice.host_id.as_ref()
            };
            let Some(record) = of_models.iter().filter(is_meant).max_by_key(|record| record.timestamp) else {
                continue;
            };
            let quantity = options.goal.quantity(record, &options.prices).unwrap_or(f64::INFINITY);
            let work = record.case().benchmark_id().group;
            found.push((quantity, value.clone(), work, record));
        }
    }
    found.sort_by(|one, other| one.0.total_cmp(&other.0));
    let entries: Vec<Entry<'_>> = found.iter().map(|it| Entry { record: it.3, ratio_to_best: None }).collect();
    let columns = COLUMNS.split(',').filter_map(RecordColumn::find).filter(|column| column.is_known(&entries));
    let columns: Vec<&RecordColumn> = columns.collect();
    let own = [per.to_string(), "work".into(), "family".into()].map(Column::text);
    let mut table = Table::new(own.into_iter().chain(columns.iter().map(|column| column.head())));
    for (place, ((_, value, work, record), entry)) in found.iter().zip(&entries).enumerate() {
        let cells = [value.clone(), work.clone(), record.family.clone()].map(Cell::from);
        let of_record = columns.iter().map(|column| Cell::from(column.text(entry)));
        let row = table.row(cells.into_iter().chain(of_record));
        if place == 0 {
            row.mark(BEST);
        }
    }
    table.footnote(format!("{BEST} the best for {}; each row is what `recommend` chooses of this {per}", options.goal));
    table
}
