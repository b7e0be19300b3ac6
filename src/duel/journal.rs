//! What a duel leaves in `<target>/inferbench/duel/<name>/`.
//!
//! - `duel.json`: what was asked, of which programs, and the plan of every case; written before the first generation that
//!   counts.
//! - `generations.jsonl`: one line per generation. Lines are only ever added, so whatever ends a duel loses at most the
//!   generation that it was in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::generation::Measured;
use super::terms::Rules;
use crate::compare::{DUEL_FORMAT, Duel};
use crate::run_data::files::{folders_with, read_json};

pub const DUEL: &str = "duel.json";
pub const GENERATIONS: &str = "generations.jsonl";

/// The question and the plan, fixed before the first generation that counts. A duel with the same question can be
/// resumed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// The arguments of `arm plan` for the base.
    pub flags: Vec<String>,
    pub rules: Rules,
    /// For the base and each candidate, every case with the library and files that it loads. Empty in older duels.
    #[serde(default)]
    pub loaded: Vec<BTreeSet<String>>,
    /// With the plan of each case, and why candidates cannot run it.
    pub duel: Duel,
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The place of the case in the plan.
    pub case: usize,
    pub number: usize,
    pub result: Measured,
}

/// Finds the last duel with the same question, and its folder.
pub fn last(duels: &Path, is_same: impl Fn(&Agreement) -> bool) -> Result<(PathBuf, Agreement)> {
    let read = |folder: PathBuf| read_json(&folder.join(DUEL)).ok().map(|agreement| (folder, agreement));
    let mut agreements = folders_with(duels, DUEL).into_iter().rev().filter_map(read);
    let is_same = |(_, agreement): &(PathBuf, Agreement)| agreement.duel.format == DUEL_FORMAT && is_same(agreement);
    agreements.find(is_same).with_context(|| {
        format!(
            "there is nothing to resume: no duel in {} has asked this question, of the same executables and with the same \
             flags",
            duels.display()
        )
    })
}
