//! A part of a suite, for one of several machines: the table `[shard]` of a suite file.

use std::collections::BTreeMap;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::case::usable_name;

/// A part of a suite, and how the whole suite was divided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// The number of this part, from 1.
    pub index: usize,
    /// The name of the suite that was divided.
    pub suite: String,
    /// When the suite was divided, so that a second measurement of it has folders of its own. Absent if every machine divides the suite for
    /// itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned: Option<Timestamp>,
    /// A case that every part measures besides its own, so that the machines can be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
    pub fingerprint: Fingerprint,
    /// All parts, in the order of their numbers.
    pub parts: Vec<ShardCases>,
}

/// The cases of one part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardCases {
    /// The kind of device that all cases run on, if the suite was divided by kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Seconds that the cases are expected to take.
    pub seconds: u64,
    /// The ids of the cases.
    pub cases: Vec<String>,
}

/// What all parts of one measurement have to have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// Version and commit of the program.
    pub program: String,
    /// SHA-256 of the ids of all cases, and of how much is measured of each.
    pub cases: String,
    /// SHA-256 of the files of each model, by its name and variant.
    pub files: BTreeMap<String, String>,
}

/// `2/4`: the second of four parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartNumber {
    pub index: usize,
    pub count: usize,
}

impl Shard {
    /// `2-of-4`: the name of the part's file and folder.
    pub fn name(&self) -> String {
        format!("{}-of-{}", self.index, self.parts.len())
    }

    /// `small-1a2b3c4d-of-4`: the name of the folder of all parts of one measurement.
    pub fn measurement(&self) -> String {
        let Fingerprint { program, cases, files } = &self.fingerprint;
        let identity = format!("{program} {cases} {files:?} {:?} {:?}", self.parts, self.planned);
        // FNV-1a (Fowler, Noll and Vo 1991): the name only has to differ from others.
        let hash =
            identity.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        format!("{}-{hash:08x}-of-{}", usable_name(&self.suite), self.parts.len())
    }

    /// Whether the part measures a case: its own, or the anchor.
    pub fn measures(&self, case_id: &str) -> bool {
        let own = self.index.checked_sub(1).and_then(|place| self.parts.get(place));
        self.anchor.as_deref() == Some(case_id) || own.is_some_and(|part| part.cases.iter().any(|own| own == case_id))
    }
}

impl Fingerprint {
    /// What differs between two parts, if they are not of one measurement.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let is_other = |(name, own): &(&String, _)| other.files.get(*name).is_some_and(|its| its != *own);
        let names: Vec<&str> = self.files.iter().filter(is_other).map(|(name, _)| name.as_str()).collect();
        if self.program != other.program {
            Some(format!("the program is {}, and not {}", other.program, self.program))
        } else if !names.is_empty() {
            Some(format!("the files of {} differ", names.join(", ")))
        } else if self.cases != other.cases || self.files != other.files {
            Some("the suite, its settings or the flags of the command differ".into())
        } else {
            None
        }
    }
}

impl FromStr for PartNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        let is_part = |&(index, count): &(usize, usize)| (1..=count).contains(&index);
        let (index, count) = numbers
            .filter(is_part)
            .ok_or_else(|| format!("{text:?} is not a part: the second of four parts is 2/4"))?;
        Ok(PartNumber { index, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_number_of_a_count() {
        assert_eq!("2/4".parse(), Ok(PartNumber { index: 2, count: 4 }));
        for wrong in ["", "2", "0/4", "5/4", "a/b", "1/0", "1/2/3"] {
            assert!(wrong.parse::<PartNumber>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_difference_names_the_program_or_the_models() {
        let files = |of_a: &str| [("a original".to_owned(), of_a.to_owned()), ("b original".into(), "2".into())];
        let one = Fingerprint { program: "p".into(), cases: "c".into(), files: files("1").into() };
        assert_eq!(one.difference(&one), None);
        let changed = Fingerprint { files: files("9").into(), ..one.clone() };
        assert_eq!(one.difference(&changed).unwrap(), "the files of a original differ");
        let fewer = Fingerprint { files: files("1").into_iter().take(1).collect(), ..one.clone() };
        let flags = "the suite, its settings or the flags of the command differ";
        assert_eq!((one.difference(&fewer).unwrap(), fewer.difference(&one).unwrap()), (flags.into(), flags.into()));
        let program = Fingerprint { program: "q".into(), ..changed };
        assert_eq!(one.difference(&program).unwrap(), "the program is q, and not p");
    }
}
