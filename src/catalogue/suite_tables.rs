//! Finds the table `[[models]]` of a suite that says how an entry of the catalogue is run.

use anyhow::{Result, ensure};

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
    let is_default = entry.variant == ORIGINAL || matches!(entry.place, Place::Folder | Place::Suite);
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
    let is_chosen_by_flag = own.is_empty();
    let tables = if is_chosen_by_flag { of_model().filter(|table| table.path.is_none()).collect() } else { own };
    let settings = |it: &'a SuiteModel| (&it.batch_sizes, &it.phases, &it.seq_lens, &it.data_source);
    let agree = tables.windows(2).all(|pair| settings(pair[0]) == settings(pair[1]));
    ensure!(
        agree || is_chosen_by_flag,
        "two tables of the suite give {} {} different batch sizes, phases, sequence lengths or samples, and it runs once: put \
         them into one table, or let each table have other `variants`",
        entry.name,
        entry.variant
    );
    Ok(tables.first().copied().filter(|_| agree))
}

fn is_of(table: &SuiteModel, entry: &Entry) -> bool {
    match table.path {
        Some(_) => table.variant.as_deref().unwrap_or(ORIGINAL) == entry.variant,
        None => is_chosen(entry, table.variants.as_deref()),
    }
}
