//! The progress of a run: new lines of its outcomes become events of its job.

use std::io::{Read, Seek, SeekFrom};

use serde_json::json;

use super::job::Job;
use crate::criterion_dir::read_entry;
use crate::definition::Phase;
use crate::paths::Paths;
use crate::run_data::{Event, Latencies, Manifest, Outcome, Record, RunFolder};

pub struct Progress {
    folder: RunFolder,
    manifest: Option<Manifest>,
    /// The bytes of the outcomes that were read so far.
    read: u64,
    /// Cases that are finished.
    pub finished: usize,
    /// Whether a case has begun since the last one was finished.
    has_begun_next: bool,
    /// Whether a further process has measured a case.
    is_measured_again: bool,
    runnable: usize,
}

impl Progress {
    pub fn new(paths: &Paths, id: &str) -> Self {
        let folder = RunFolder::new(paths.runs().join(id));
        Progress {
            folder,
            manifest: None,
            read: 0,
            finished: 0,
            has_begun_next: false,
            is_measured_again: false,
            runnable: 0,
        }
    }

    /// Whether the server may end the run: no case is in the middle of its first measurement. A case that is the only
    /// one is also observed first.
    pub fn may_end(&self) -> bool {
        match self.finished < self.runnable {
            true => self.finished > 0 && self.has_begun_next,
            false => self.runnable > 1 || self.is_measured_again,
        }
    }

    /// Reads new outcomes. `line` is what the run has just printed, such as `[2/4] digits/ort-cpu-f32/1, about 12 s
    /// left`.
    pub fn look(&mut self, job: &Job, line: &str) {
        if self.manifest.is_none() {
            self.manifest = self.folder.read_manifest().ok();
            if let Some(manifest) = &self.manifest {
                let ids: Vec<String> = manifest.cases.iter().map(|planned| planned.case.to_string()).collect();
                self.runnable = manifest.cases.iter().filter(|planned| planned.failure.is_none()).count();
                let cases = ids.len();
                job.tell("planned", json!({ "cases": ids }), |status| status.cases = Some(cases));
                for planned in &manifest.cases {
                    if let Some(failure) = &planned.failure {
                        let data = json!({
                            "id": planned.case.to_string(), "state": "finished", "status": failure.status, "message": failure.message,
                        });
                        job.tell("case", data, |status| status.finished_cases += 1);
                    }
                }
            }
        }
        for event in self.new_events() {
            self.take(job, &event);
        }
        if let Some((_, left)) = line.strip_prefix('[').and_then(|_| line.rsplit_once(", about ")) {
            let left = left.strip_suffix(" left").unwrap_or(left).to_owned();
            job.tell("left", json!({ "time_left": left }), |status| status.time_left = Some(left));
        }
        // `observing [2/4] digits/ort-cpu-f32/1`
        if let Some((_, rest)) = line.strip_prefix("observing ").and_then(|rest| rest.split_once("] ")) {
            let data = json!({ "id": rest, "state": "observed" });
            job.tell("case", data, |status| status.current = Some(format!("memory of {rest}")));
        }
    }

    fn take(&mut self, job: &Job, event: &Event) {
        match event {
            Event::Started { id } => {
                self.has_begun_next = true;
                let data = json!({ "id": id, "state": "started" });
                job.tell("case", data, |status| status.current = Some(id.clone()));
            }
            Event::Finished(outcome) => {
                self.finished += 1;
                self.has_begun_next = false;
                let data = self.figures(outcome);
                job.tell("case", data, |status| {
                    status.finished_cases += 1;
                    status.current = None;
                });
            }
            Event::MeasuredAgain { .. } => self.is_measured_again = true,
            _ => {}
        }
    }

    /// The event of a finished case. Its whole record is made when the run is over.
    fn figures(&self, outcome: &Outcome) -> serde_json::Value {
        let row = &outcome.row;
        let root = self.manifest.as_ref().map(|manifest| manifest.criterion_root.join(&row.case_id).join("new"));
        let entry = root.filter(|_| row.status.is_measured()).and_then(|folder| read_entry(&folder).ok());
        let latencies = entry.and_then(|entry| Latencies::of_samples(&entry.samples_ns, entry.disturbed.as_deref()));
        let mean_ms = latencies.as_ref().map(|latencies| latencies.mean_ms);
        json!({
            "id": row.case_id, "state": "finished", "status": row.status, "message": row.message, "seconds": outcome.seconds,
            "backend": row.backend, "device": row.device, "dtype": row.dtype, "batch_size": row.batch_size, "verified": row.verified,
            "latency_p50_ms": latencies.as_ref().map(|latencies| latencies.percentiles_ms[0]),
            "latency_p99_ms": latencies.as_ref().map(|latencies| latencies.percentiles_ms[3]),
            "throughput_ips": mean_ms.and_then(|ms| samples_per_second(row, ms)),
        })
    }

    /// The events that were added to the outcomes since the last call.
    fn new_events(&mut self) -> Vec<Event> {
        let Ok(mut file) = std::fs::File::open(self.folder.outcomes_path()) else { return Vec::new() };
        let mut bytes = Vec::new();
        if file.seek(SeekFrom::Start(self.read)).and_then(|_| file.read_to_end(&mut bytes)).is_err() {
            return Vec::new();
        }
        // Each line begins with its line break, so the last one may be incomplete.
        let mut events = Vec::new();
        let mut taken = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_ended = line.ends_with(b"\n");
            match serde_json::from_slice(line) {
                Ok(event) => events.push(event),
                Err(_) if !is_ended => break,
                Err(_) => {}
            }
            taken += line.len();
        }
        self.read += taken as u64;
        events
    }
}

/// Samples per second. Returns `None` for `decode`, whose calls make a token each.
fn samples_per_second(row: &Record, mean_ms: f64) -> Option<f64> {
    (row.phase != Phase::Decode).then(|| row.batch_size as f64 / mean_ms * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoding_case_has_no_samples_per_second() {
        let of = |phase| samples_per_second(&Record { phase, batch_size: 8, ..Record::default() }, 4.0);
        assert_eq!([of(Phase::Forward), of(Phase::Prefill), of(Phase::Decode)], [Some(2000.0), Some(2000.0), None]);
    }

    #[test]
    fn a_run_may_end_between_cases_and_in_all_later_steps() {
        let may_end = |runnable: usize, events: Vec<Event>| -> Vec<bool> {
            let (job, paths) = (Job::default(), Paths::of("nowhere".into()));
            let mut progress = Progress { runnable, ..Progress::new(&paths, "run") };
            let after = |event: &Event| {
                progress.take(&job, event);
                progress.may_end()
            };
            events.iter().map(after).collect()
        };
        let started = || Event::Started { id: "a".into() };
        let finished = || Event::Finished(Box::new(Outcome::new(Record::default())));
        let again = || {
            let latencies = Latencies::of_samples(&[vec![1]], None).unwrap();
            Event::MeasuredAgain { id: "a".into(), latencies }
        };
        let of_two = vec![started(), finished(), started(), finished(), started(), again()];
        assert_eq!(may_end(2, of_two), [false, false, true, true, true, true]);
        assert_eq!(may_end(1, vec![started(), finished(), started(), again()]), [false, false, false, true]);
    }
}
