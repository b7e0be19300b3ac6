//! Finds the table `[[models]]` of a suite that says how an entry of the catalogue is run.

use anyhow::{Result, bail};

use super::entries::{Entry, Place};
use crate::definition::{ORIGINAL, Suite, SuiteModel};

/// The word for all variants of a model.
pub const ALL: &str = "all";

/// Whether the asked variants include this one. Without a list, all are included.
pub fn is_named(variant: &str, asked: Option<&[String]>) -> bool {
    asked.is_none_or(|names| names.iter().any(|name| name == variant || name == ALL))
}

/// Whether an entry runs: without a list of variants, the original of a packaged model and all files of users do.
pub fn is_chosen(entry: &Entry, asked: Option<&[String]>) -> bool {
    let is_default = entry.variant == ORIGINAL || entry.place != Place::Zoo;
    is_named(&entry.variant, asked) && (asked.is_some() || is_default)
}

/// The table with the settings of an entry: that of its file, or one that chooses it. If none does, because a flag has
/// chosen the entry, it is the table of the model, if its tables agree.
///
/// # Errors
/// Two tables choose it with different settings.
pub fn table_of<'a>(suite: &'a Suite, entry: &Entry) -> Result<Option<&'a SuiteModel>> {
    let of_model = || suite.models.iter().filter(|table| table.name == entry.name);
    let own: Vec<&SuiteModel> = of_model().filter(|table| is_of(table, entry)).collect();
    if own.is_empty() {
        let others: Vec<&SuiteModel> = of_model().filter(|table| table.path.is_none()).collect();
        return Ok(others
            .first()
            .copied()
            .filter(|first| others.iter().all(|other| difference(first, other).is_none())));
    }
    let first = own.first().copied();
    match own.iter().find_map(|other| difference(first?, other)) {
        Some(key) => bail!(
            "two tables of the suite give {} {} different `{key}`, and it runs once: put them into one table, or let each \
             table have other `variants`",
            entry.name,
            entry.variant
        ),
        None => Ok(first),
    }
}

fn is_of(table: &SuiteModel, entry: &Entry) -> bool {
    match table.path {
        Some(_) => table.variant.as_deref().unwrap_or(ORIGINAL) == entry.variant,
        None => is_chosen(entry, table.variants.as_deref()),
    }
}

/// The first setting that differs between two tables.
fn difference(one: &SuiteModel, other: &SuiteModel) -> Option<&'static str> {
    let differs = [
        ("batch_sizes", one.batch_sizes != other.batch_sizes),
        ("phases", one.phases != other.phases),
        ("seq_lens", one.seq_lens != other.seq_lens),
        ("data_source", one.data_source != other.data_source),
    ];
    differs.into_iter().find_map(|(key, differs)| differs.then_some(key))
}
