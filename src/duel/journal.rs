//! What a duel leaves in `<target>/inferbench/duel/<name>/`.
//!
//! - `duel.json`: what was asked, of which programs, and the plan of every case; written before the first generation that
//!   counts.
//! - `generations.jsonl`: one line per generation. Lines are only ever added, so whatever ends a duel loses at most the
//!   generation that it was in.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::generation::MeasuredGeneration;
use crate::compare::{DUEL_FORMAT, DuetPlan, Loss, Program};
use crate::machine::Machine;
use crate::run_data::files::{append_line, read_lines};
use crate::run_data::write_whole;

const DUEL: &str = "duel.json";
const GENERATIONS: &str = "generations.jsonl";

/// What was asked. A duel of the same question can be resumed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    pub base: Program,
    pub candidates: Vec<Program>,
    /// What the base was told.
    pub flags: Vec<String>,
    pub null_slowdown: Option<f64>,
    pub least_call_ns: u64,
    pub length: Length,
    pub tolerance: f64,
    pub slice_ms: f64,
    /// Whether the arms' threads are pinned to processors.
    pub is_pinned: bool,
}

/// How long a duel may take.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Length {
    /// As many generations as the verdict needs, within the time that the number of cases allows.
    Usual,
    /// The same within so many minutes for all cases.
    Minutes(f64),
    /// As many generations as fit into so many minutes for all cases, however narrow the interval is before.
    WholeMinutes(f64),
    /// So many generations, whatever the interval.
    Generations(usize),
}

/// A case and how it is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedDuel {
    pub id: String,
    /// The candidates that cannot run it, and why.
    pub losses: Vec<Loss>,
    /// The number of generations and slices, or why there are none.
    pub plan: Result<DuetPlan, Loss>,
}

/// What was settled before the first generation that counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    pub format: u32,
    pub name: String,
    pub started: Timestamp,
    pub question: Question,
    pub seed: u64,
    /// The processors that the arms' threads are pinned to; empty if they are not pinned.
    pub processors: Vec<usize>,
    pub cases: Vec<PlannedDuel>,
    pub machine: Machine,
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The place of the case in [`Agreement::cases`].
    pub case: usize,
    pub number: usize,
    /// What was measured, or why the case is lost from here on.
    pub result: Result<MeasuredGeneration, Loss>,
}

/// The folder of a duel.
#[derive(Clone, Debug)]
pub struct Journal(PathBuf);

impl Journal {
    /// Begins a new one, named after the time.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn begin(duels: &Path, started: Timestamp) -> Result<Self> {
        let time = started.strftime("%Y%m%dT%H%M%SZ").to_string();
        let names = std::iter::once(time.clone()).chain((2..).map(|number| format!("{time}-{number}")));
        let path = names.map(|name| duels.join(name)).find(|path| !path.exists()).unwrap_or_else(|| duels.join(time));
        fs_err::create_dir_all(&path)?;
        Ok(Journal(path))
    }

    /// Finds the last duel of this question.
    ///
    /// # Errors
    /// There is none.
    pub fn last(duels: &Path, question: &Question, seed: Option<u64>) -> Result<(Self, Agreement)> {
        let entries = std::fs::read_dir(duels).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.path()).filter(|path| path.join(DUEL).is_file()).collect();
        paths.sort();
        let is_same = |(_, agreement): &(Journal, Agreement)| {
            agreement.format == DUEL_FORMAT
                && agreement.question == *question
                && seed.is_none_or(|seed| seed == agreement.seed)
        };
        paths.into_iter().rev().filter_map(|path| Journal::open(path).ok()).find(is_same).ok_or_else(|| {
            anyhow!(
                "there is nothing to resume: no duel in {} has asked this question, of the same executables and with the \
                 same flags",
                duels.display()
            )
        })
    }

    /// Opens a duel that was agreed on.
    ///
    /// # Errors
    /// There is none in this folder, or it cannot be read.
    pub fn open(path: PathBuf) -> Result<(Self, Agreement)> {
        let file = path.join(DUEL);
        let agreement = serde_json::from_slice(&fs_err::read(&file)?).with_context(|| file.display().to_string())?;
        Ok((Journal(path), agreement))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn name(&self) -> String {
        self.0.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Writes what was agreed on.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self, agreement: &Agreement) -> Result<()> {
        write_whole(&self.0.join(DUEL), &serde_json::to_vec_pretty(agreement)?)
    }

    /// Adds a line, which is on the disk when this returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(&self, entry: &Entry) -> Result<()> {
        append_line(&self.0.join(GENERATIONS), entry)
    }

    /// Reads the generations so far; one whose line was cut short is measured again.
    pub fn entries(&self) -> Vec<Entry> {
        read_lines(&self.0.join(GENERATIONS))
    }
}
