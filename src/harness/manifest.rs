//! What a run leaves beside Criterion's tree, in `<target>/inferbench/runs/<run-id>/`.
//!
//! - `manifest.json`: what was asked for, where, and by which build; written before the first case.
//! - `outcomes.jsonl`: one line when a case begins and one when it ends, and the same of judging its answers. Lines are only ever added, so whatever ends a
//!   run (a crash, a signal, a full disk) loses at most the case that it was at.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::machine::{Machine, Revision};
use crate::definition::{BenchmarkId, Case, CaseFailure, Cost, Dtype, Status, Suite};
use crate::measurement::peaks::Peaks;
use crate::measurement::{Stop, Usage};

/// Changes when an older reader would misunderstand the files.
pub const MANIFEST_FORMAT: u32 = 1;
const MANIFEST: &str = "manifest.json";
const OUTCOMES: &str = "outcomes.jsonl";

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub run_id: String,
    pub started: Timestamp,
    /// Absent while it runs, and for good when it was killed.
    pub finished: Option<Timestamp>,
    pub is_interrupted: bool,
    /// Arguments as they were given.
    pub arguments: Vec<String>,
    pub suite_name: String,
    /// The suite with the flags and variables put on top.
    pub suite: Suite,
    pub threads: usize,
    pub inferbench_version: String,
    pub rustc_version: String,
    pub revision: Revision,
    pub machine: Machine,
    /// What the machine can do at best; absent where no case asks for it, and in older manifests.
    #[serde(default)]
    pub peaks: Option<Peaks>,
    pub criterion_root: PathBuf,
    /// Criterion's name for these results, beside `new`.
    pub saved_baseline: Option<String>,
    /// What Criterion compared with.
    pub compared_baseline: Option<String>,
    pub is_quick: bool,
    pub cases: Vec<ManifestCase>,
}

/// A case that the run was asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ManifestCase {
    pub case: Case,
    pub framework: String,
    pub family: String,
    pub modality: String,
    pub parameters: Option<u64>,
    #[serde(default)]
    pub nonzero_parameters: Option<u64>,
    /// What a call costs by the model's graphs; absent where that cannot be counted, and in older manifests.
    #[serde(default)]
    pub cost: Option<Cost>,
    /// Of all files that it can be loaded from or is proven by; absent where there are none, where no measurement is kept,
    /// and in older manifests.
    #[serde(default)]
    pub files_sha256: Option<String>,
    /// Of the samples by which its answers are judged; absent where they are made, and as above.
    #[serde(default)]
    pub samples_sha256: Option<String>,
    /// Why it cannot run, where that was known before.
    #[serde(alias = "shortfall")]
    pub failure: Option<CaseFailure>,
}

/// A line of `outcomes.jsonl`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Started {
        id: BenchmarkId,
    },
    Finished(Box<Outcome>),
    /// The answers of a finished case are being judged; again while that goes on.
    Judging {
        id: BenchmarkId,
        /// Samples so far.
        samples: usize,
    },
    Judged {
        id: BenchmarkId,
        judgement: Judgement,
    },
    ColdStarted {
        id: BenchmarkId,
        start: ColdStart,
    },
    Watched {
        id: BenchmarkId,
        usage: Usage,
        /// Wall time of the process.
        #[serde(default)]
        seconds: f64,
    },
}

impl Event {
    /// Of a process that has loaded this case and nothing else.
    pub fn cold_start(id: BenchmarkId, observed: &Observed) -> Self {
        let start = ColdStart {
            load_ms: observed.load_ms.unwrap_or_default(),
            compilation_ms: observed.compilation_ms,
            first_inference_ms: observed.first_inference_ms.unwrap_or_default(),
        };
        Event::ColdStarted { id, start }
    }
}

/// What one fresh process took, from the model's file to the first output.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColdStart {
    pub load_ms: f64,
    /// Absent where it is a part of loading.
    pub compilation_ms: Option<f64>,
    pub first_inference_ms: f64,
}

/// How a case ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub id: BenchmarkId,
    pub status: Status,
    pub message: Option<String>,
    pub observed: Observed,
    /// Wall time of the whole case.
    pub seconds: f64,
}

/// How judging the answers of a case ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Why there is none, where it went wrong.
    pub failure: Option<String>,
    /// Wall time.
    pub seconds: f64,
}

/// What the harness saw of a case besides the latencies. Absent is unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Observed {
    pub input_shape: Option<String>,
    /// Tokens that a call reads (`prefill`) or makes (`decode`).
    pub tokens_a_call: Option<usize>,
    /// Whether the outputs were right; absent where there is nothing to compare with.
    pub verified: Option<bool>,
    pub max_abs_error: Option<f64>,
    pub max_rel_error: Option<f64>,
    pub effective_device: Option<String>,
    pub effective_dtype: Option<Dtype>,
    pub providers: Option<String>,
    /// Part of the nodes, from 0 to 1, that a profile shows on the provider of the device.
    pub provider_share: Option<f64>,
    /// What is behind the device, where the runtime says it: `cpu`, `gpu` or `npu`.
    pub device_type: Option<String>,
    pub executor: Option<String>,
    pub threads: Option<usize>,
    /// A call's time out of a few, where they were made to see whether the case works and not to measure it.
    pub rough_call_ms: Option<f64>,
    pub load_ms: Option<f64>,
    pub first_inference_ms: Option<f64>,
    /// Compiling for the shapes that are bound, where the runtime does that apart from loading.
    pub compilation_ms: Option<f64>,
    /// Medians of the parts of calls from host to host.
    pub h2d_ms: Option<f64>,
    pub compute_ms: Option<f64>,
    pub d2h_ms: Option<f64>,
    pub warmup_iterations: Option<usize>,
    /// Whether the warm-up ended because the times were steady, and not because its time was over.
    pub warmup_is_steady: Option<bool>,
    pub stopped_by: Option<Stop>,
    /// Peak resident set of the process over the case.
    pub peak_memory_bytes: Option<u64>,
    pub artifact_bytes: Option<u64>,
    pub artifact_sha256: Option<String>,
    pub backend_version: Option<String>,
    pub library_version: Option<String>,
}

/// The folder of a run.
#[derive(Clone, Debug)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    pub fn new(path: PathBuf) -> Self {
        RunFolder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The folder of a run by its id, or of the latest run.
    ///
    /// # Errors
    /// There is no such run; the message says how to make one.
    pub fn find(runs: &Path, run_id: Option<&str>) -> Result<Self, String> {
        let all = RunFolder::all(runs);
        let found = match run_id {
            Some(id) => all.into_iter().find(|folder| folder.0.file_name().is_some_and(|name| name == id)),
            None => all.into_iter().next_back(),
        };
        found.ok_or_else(|| match run_id {
            Some(id) => format!("no run {id:?} in {}", runs.display()),
            None => format!("no run in {}; make one with `cargo bench` or `inferbench run`", runs.display()),
        })
    }

    /// All runs, the oldest first: ids begin with the time.
    pub fn all(runs: &Path) -> Vec<Self> {
        let mut folders: Vec<PathBuf> = fs::read_dir(runs)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.join(MANIFEST).is_file())
            .collect();
        folders.sort();
        folders.into_iter().map(RunFolder).collect()
    }

    /// Writes the manifest, whole or not at all.
    pub fn write_manifest(&self, manifest: &Manifest) -> Result<(), String> {
        let path = self.0.join(MANIFEST);
        let partial = path.with_extension("partial");
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(&self.0)?;
            let mut file = File::create(&partial)?;
            serde_json::to_writer_pretty(&mut file, manifest)?;
            file.sync_all()?;
            fs::rename(&partial, &path)
        };
        write().map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads the manifest.
    ///
    /// # Errors
    /// It is missing, cut short, or of a newer version.
    pub fn read_manifest(&self) -> Result<Manifest, String> {
        let path = self.0.join(MANIFEST);
        let named = |error: String| format!("{}: {error}", path.display());
        let bytes = fs::read(&path).map_err(|error| named(error.to_string()))?;
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let Format { format } = serde_json::from_slice(&bytes).map_err(|error| named(error.to_string()))?;
        if format > MANIFEST_FORMAT {
            return Err(named(format!(
                "format {format} is newer than this inferbench, which reads up to {MANIFEST_FORMAT}"
            )));
        }
        serde_json::from_slice(&bytes).map_err(|error| named(error.to_string()))
    }

    /// Adds a line to the outcomes.
    pub fn append(&self, event: &Event) -> Result<(), String> {
        let path = self.outcomes_path();
        let mut line = serde_json::to_vec(event).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let write = || -> std::io::Result<()> {
            let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
            file.write_all(&line)?;
            file.sync_data()
        };
        write().map_err(|error| format!("{}: {error}", path.display()))
    }

    pub fn outcomes_path(&self) -> PathBuf {
        self.0.join(OUTCOMES)
    }

    /// Reads the outcomes; a last line that was cut short is left out.
    pub fn read_outcomes(&self) -> Outcomes {
        let text = fs::read_to_string(self.outcomes_path()).unwrap_or_default();
        let mut outcomes = Outcomes::default();
        for event in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
            match event {
                Event::Started { id } => outcomes.unfinished = Some(id),
                Event::Finished(outcome) => {
                    if outcomes.unfinished.as_ref() == Some(&outcome.id) {
                        outcomes.unfinished = None;
                    }
                    if outcomes.unjudged.as_ref() == Some(&outcome.id) {
                        outcomes.unjudged = None;
                    }
                    outcomes.finished.insert(outcome.id.to_string(), *outcome);
                }
                Event::Judging { id, .. } => outcomes.unjudged = Some(id),
                Event::Judged { id, judgement } => {
                    if outcomes.unjudged.as_ref() == Some(&id) {
                        outcomes.unjudged = None;
                    }
                    outcomes.judged.insert(id.to_string(), judgement);
                }
                Event::ColdStarted { id, start } => {
                    outcomes.cold_starts.insert(id.to_string(), start);
                }
                Event::Watched { id, usage, seconds } => {
                    outcomes.watch_seconds.insert(id.to_string(), seconds);
                    outcomes.watched.insert(id.to_string(), usage);
                }
            }
        }
        outcomes
    }
}

/// What became of the cases so far.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    /// By id.
    pub finished: BTreeMap<String, Outcome>,
    /// Memory and energy of the cases that were watched, by id.
    pub watched: BTreeMap<String, Usage>,
    /// The last cold start of each case, by id.
    pub cold_starts: BTreeMap<String, ColdStart>,
    /// How long their watching took.
    pub watch_seconds: BTreeMap<String, f64>,
    /// How judging the answers of cases ended, by id.
    pub judged: BTreeMap<String, Judgement>,
    /// The case that began last and has not ended.
    pub unfinished: Option<BenchmarkId>,
    /// The finished case whose answers were not judged to the end.
    pub unjudged: Option<BenchmarkId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> RunFolder {
        let path = std::env::temp_dir().join(format!("inferbench-manifest-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        RunFolder::new(path)
    }

    fn id(value: &str) -> BenchmarkId {
        BenchmarkId { group: "g".into(), function: "f".into(), value: value.into() }
    }

    fn outcome(value: &str) -> Event {
        Event::Finished(Box::new(Outcome {
            id: id(value),
            status: Status::Ok,
            message: None,
            observed: Observed::default(),
            seconds: 1.0,
        }))
    }

    #[test]
    fn a_line_cut_short_loses_only_itself() {
        let folder = folder("cut");
        for event in [Event::Started { id: id("1") }, outcome("1"), Event::Started { id: id("2") }] {
            folder.append(&event).unwrap();
        }
        let mut file = OpenOptions::new().append(true).open(folder.outcomes_path()).unwrap();
        file.write_all(b"{\"finished\":{\"id\":{\"gro").unwrap();
        let outcomes = folder.read_outcomes();
        assert_eq!(outcomes.finished.keys().collect::<Vec<_>>(), ["g/f/1"]);
        assert_eq!(outcomes.unfinished, Some(id("2")));
    }

    #[test]
    fn a_newer_manifest_is_refused_by_its_number() {
        let folder = folder("newer");
        fs::write(folder.path().join(MANIFEST), "{\"format\": 99, \"else\": 1}").unwrap();
        assert!(folder.read_manifest().unwrap_err().contains("format 99 is newer"));
    }
}
