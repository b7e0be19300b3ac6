//! What a duel leaves in `<target>/inferbench/duel/<name>/`.
//!
//! - `duel.json`: what was asked, who fights, the seed and the number of rounds; written before the first round.
//! - `rounds.jsonl`: one line a round, with everything that its processes reported. Lines are only ever added, so whatever
//!   ends a duel loses at most the round that it was in.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::fighter::Side;
use super::order::Contestant;
use super::pairing::Pair;
use crate::harness::{Machine, RoundReport};
use crate::store::write_whole;

/// Changes when an older reader would misunderstand the files.
pub const DUEL_FORMAT: u32 = 1;
const DUEL: &str = "duel.json";
const ROUNDS: &str = "rounds.jsonl";

/// What was asked. A duel of the same question can be gone on with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    pub base: Side,
    pub candidate: Side,
    /// What every process of the base is told.
    pub flags: Vec<String>,
    pub null_slowdown: Option<f64>,
    pub length: Length,
    pub is_sequential: bool,
    pub tolerance: f64,
    pub seconds_a_case: f64,
}

/// How long a duel is to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Length {
    Rounds(usize),
    Minutes(f64),
    /// So many rounds, or more where there are so many cases that fewer could show nothing.
    AtLeast(usize),
}

/// What was settled before the first round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    pub format: u32,
    pub name: String,
    pub started: Timestamp,
    pub question: Question,
    pub seed: u64,
    pub rounds: usize,
    /// As the trial round makes expect.
    pub seconds_a_round: f64,
    pub pairs: Vec<Pair>,
    pub machine: Machine,
}

/// A round that was fought to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    pub number: usize,
    pub seconds: f64,
    /// In the order in which they ran.
    pub processes: Vec<(Contestant, RoundReport)>,
}

/// The folder of a duel.
#[derive(Clone, Debug)]
pub struct Journal(PathBuf);

impl Journal {
    /// A new one, named after the time.
    pub fn begin(duels: &Path, started: Timestamp) -> Result<Self, String> {
        let time = started.strftime("%Y%m%dT%H%M%SZ").to_string();
        let names = std::iter::once(time.clone()).chain((2..).map(|number| format!("{time}-{number}")));
        let path = names.map(|name| duels.join(name)).find(|path| !path.exists()).unwrap_or_else(|| duels.join(time));
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Journal(path))
    }

    /// The last duel of this question.
    ///
    /// # Errors
    /// There is none.
    pub fn last(duels: &Path, question: &Question, seed: Option<u64>) -> Result<(Self, Agreement), String> {
        let entries = fs::read_dir(duels).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.path()).filter(|path| path.join(DUEL).is_file()).collect();
        paths.sort();
        let is_same = |(_, agreement): &(Journal, Agreement)| {
            agreement.format == DUEL_FORMAT
                && agreement.question == *question
                && seed.is_none_or(|seed| seed == agreement.seed)
        };
        paths.into_iter().rev().filter_map(|path| Journal::open(path).ok()).find(is_same).ok_or_else(|| {
            format!(
                "there is nothing to resume: no duel in {} has asked this question, of the same executables and with \
                 the same flags",
                duels.display()
            )
        })
    }

    /// A duel that was settled.
    ///
    /// # Errors
    /// There is none in this folder, or it cannot be read.
    pub fn open(path: PathBuf) -> Result<(Self, Agreement), String> {
        let file = path.join(DUEL);
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let bytes = fs::read(&file).map_err(|error| named(&error))?;
        let agreement = serde_json::from_slice(&bytes).map_err(|error| named(&error))?;
        Ok((Journal(path), agreement))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn name(&self) -> String {
        self.0.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub fn write(&self, agreement: &Agreement) -> Result<(), String> {
        let bytes = serde_json::to_vec_pretty(agreement).map_err(|error| error.to_string())?;
        write_whole(&self.0.join(DUEL), &bytes).map_err(|error| format!("{error:#}"))
    }

    pub fn append(&self, round: &Round) -> Result<(), String> {
        let path = self.0.join(ROUNDS);
        let mut line = serde_json::to_vec(round).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let write = || -> std::io::Result<()> {
            let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
            file.write_all(&line)?;
            file.sync_data()
        };
        write().map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The rounds so far. A line that was cut short is taken out of the file, so that the next one is whole.
    pub fn rounds(&self) -> Result<Vec<Round>, String> {
        let path = self.0.join(ROUNDS);
        let text = fs::read_to_string(&path).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        if whole.len() < text.len() {
            write_whole(&path, whole.as_bytes()).map_err(|error| format!("{error:#}"))?;
        }
        let read = |line: &str| serde_json::from_str(line).map_err(|error| format!("{}: {error}", path.display()));
        whole.lines().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_was_cut_short_is_fought_again() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::begin(folder.path(), Timestamp::UNIX_EPOCH).unwrap();
        let round = |number| Round { number, seconds: 1.0, processes: Vec::new() };
        journal.append(&round(0)).unwrap();
        let mut file = OpenOptions::new().append(true).open(journal.path().join(ROUNDS)).unwrap();
        file.write_all(b"{\"number\":1,\"sec").unwrap();
        assert_eq!(journal.rounds().unwrap(), [round(0)]);
        journal.append(&round(1)).unwrap();
        assert_eq!(journal.rounds().unwrap(), [round(0), round(1)]);
    }
}
