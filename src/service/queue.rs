//! The queue: one job runs at a time, and a few may wait.

use std::collections::VecDeque;
use std::fs::TryLockError;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result, bail};
use indexmap::IndexMap;
use jiff::Timestamp;
use tokio::sync::Notify;

use super::asked::{Asked, write_own_suite};
use super::failure::Failure;
use super::job::{Job, JobStatus, State};
use crate::paths::Paths;
use crate::report::numbers::plural;
use crate::run_data::files::{read_json, unused_name, write_json};

/// The number of jobs that are remembered after their end.
const REMEMBERED: usize = 1000;
/// The expected seconds per case before any has run.
const SECONDS_PER_CASE: f64 = 15.0;

pub struct Queue {
    /// `<target>/inferbench/service`: a file per job, and the suite of jobs that name none.
    pub folder: PathBuf,
    /// The folder of all runs. Each job has a folder in it.
    runs: PathBuf,
    places: usize,
    /// The jobs that the last server did not finish.
    pub left_over: Vec<String>,
    inner: Mutex<Inner>,
    wake: Notify,
    /// Held as long as the server runs.
    _lock: std::fs::File,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Arc<Job>>,
    running: Option<Arc<Job>>,
    /// By id, the oldest first.
    jobs: IndexMap<String, Arc<Job>>,
    is_closing: bool,
    /// A moving average over the last jobs.
    seconds_per_case: f64,
}

impl Queue {
    /// Reads the jobs of earlier servers. Jobs that were not over become `interrupted`.
    ///
    /// # Errors
    /// The folder cannot be written, or a running server uses it.
    pub fn open(paths: &Paths, places: usize) -> Result<Self> {
        let runs = paths.runs();
        let folder = runs.with_file_name("service");
        write_own_suite(&folder)?;
        // A second server would treat the jobs of this one as those of a killed server, and remove their runs.
        let lock = locked(&folder)?;
        let files = fs_err::read_dir(&folder)?.flatten().map(|entry| entry.path());
        let of_jobs = files.filter(|file| file.extension().is_some_and(|extension| extension == "json"));
        // Nothing is known of a job whose file is damaged.
        let mut kept: Vec<JobStatus> = of_jobs.filter_map(|file| read_json(&file).ok()).collect();
        kept.sort_by_key(|status| status.submitted);
        let mut left_over = Vec::new();
        let mut job = |mut status: JobStatus| {
            if !status.state.is_over() {
                left_over.push(status.id.clone());
                status.state = State::Interrupted;
                status.message = Some("the server was ended before the job was finished".into());
                (status.place, status.expected_wait_s) = (None, None);
            }
            (status.id.clone(), Arc::new(Job::new(status)))
        };
        let jobs = kept.into_iter().map(&mut job).collect();
        let inner = Mutex::new(Inner { jobs, seconds_per_case: SECONDS_PER_CASE, ..Inner::default() });
        let wake = Notify::new();
        let queue = Queue { folder, runs, places, left_over, inner, wake, _lock: lock };
        queue.left_over.iter().filter_map(|id| queue.job(id)).try_for_each(|job| queue.keep(&job))?;
        queue.jobs().iter().for_each(|job| queue.learn(job));
        Ok(queue)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Stores the status of a job for the next server.
    pub fn keep(&self, job: &Job) -> Result<()> {
        let status = job.status();
        write_json(&self.folder.join(format!("{}.json", status.id)), &status)
    }

    /// All jobs, the oldest first.
    pub fn jobs(&self) -> Vec<Arc<Job>> {
        self.inner().jobs.values().cloned().collect()
    }

    pub fn job(&self, id: &str) -> Option<Arc<Job>> {
        self.inner().jobs.get(id).cloned()
    }

    /// Puts a job into the queue, or finds an equal one that waits or runs. A `detached` job is always a new one, and
    /// continues without a waiting client.
    ///
    /// # Errors
    /// The queue is full, the server is ending, or the job cannot be stored.
    pub fn submit(&self, asked: Asked, detached: bool) -> Result<Arc<Job>, Failure> {
        let mut inner = self.inner();
        if inner.is_closing {
            return Err(Failure::unavailable("the server is ending", 60));
        }
        let is_same = |job: &&Arc<Job>| !job.is_cancelled() && job.status().asked == asked;
        if !detached && let Some(job) = inner.waiting.iter().chain(&inner.running).find(is_same) {
            return Ok(job.clone());
        }
        if inner.waiting.len() >= self.places {
            let first_free = inner.running.iter().map(|job| inner.seconds_left(job)).sum::<f64>();
            let waiting = plural(self.places, "job waits", "jobs wait");
            let message = format!("{waiting} already; try again later");
            return Err(Failure::unavailable(message, first_free.ceil().max(1.0) as u64));
        }
        let submitted = Timestamp::now();
        let id = self.reserve(submitted)?;
        let job = Arc::new(Job::new(JobStatus { id: id.clone(), asked, submitted, ..JobStatus::default() }));
        job.is_detached.store(detached, Ordering::SeqCst);
        inner.waiting.push_back(job.clone());
        inner.jobs.insert(id, job.clone());
        // A job that waits or runs stays, so that it can be followed and cancelled.
        while inner.jobs.len() > REMEMBERED + self.places + 1
            && let Some(oldest) = inner.jobs.values().position(|job| job.state().is_over())
        {
            if let Some((id, _)) = inner.jobs.shift_remove_index(oldest) {
                // The next server reads a file that was not removed.
                let _ = fs_err::remove_file(self.folder.join(format!("{id}.json")));
            }
        }
        inner.tell_places();
        drop(inner);
        if let Err(error) = self.keep(&job) {
            self.cancel(&job);
            return Err(error.into());
        }
        self.wake.notify_one();
        Ok(job)
    }

    /// Makes the folder of a run, whose name is the id of its job.
    fn reserve(&self, submitted: Timestamp) -> Result<String> {
        fs_err::create_dir_all(&self.runs)?;
        loop {
            let id = unused_name(&self.runs, submitted);
            match fs_err::create_dir(self.runs.join(&id)) {
                // Another process has just made it.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => return Ok(made.map(|()| id)?),
            }
        }
    }

    /// Cancels a job. A waiting job is over at once.
    pub fn cancel(&self, job: &Arc<Job>) {
        job.cancel();
        self.drop_cancelled();
    }

    /// Removes cancelled jobs from the queue.
    pub fn drop_cancelled(&self) {
        let mut inner = self.inner();
        let (gone, left): (VecDeque<_>, VecDeque<_>) = inner.waiting.drain(..).partition(|job| job.is_cancelled());
        inner.waiting = left;
        inner.tell_places();
        drop(inner);
        gone.iter().for_each(|job| self.end(job, State::Cancelled, None));
    }

    /// Notes how a job ended.
    pub fn end(&self, job: &Job, state: State, message: Option<String>) {
        job.update(|status| {
            status.state = state;
            status.finished = Some(Timestamp::now());
            (status.place, status.expected_wait_s, status.current, status.time_left) = (None, None, None, None);
            status.message = message;
        });
        // Removes the folder of a run that has not begun: only an empty folder can be removed.
        let _ = fs_err::remove_dir(self.runs.join(job.id()));
        if let Err(error) = self.keep(job) {
            eprintln!("inferbench: {error:#}");
        }
    }

    /// The next job, which runs from now on. Returns `None` when the server is ending.
    pub async fn next(&self) -> Option<Arc<Job>> {
        loop {
            self.drop_cancelled();
            {
                let mut inner = self.inner();
                inner.running = None;
                if inner.is_closing {
                    return None;
                }
                if let Some(job) = inner.waiting.pop_front() {
                    inner.running = Some(job.clone());
                    inner.tell_places();
                    return Some(job);
                }
            }
            self.wake.notified().await;
        }
    }

    /// Learns how long a job took per case.
    pub fn learn(&self, job: &Job) {
        let status = job.status();
        if let (Some(started), Some(finished)) = (status.started, status.finished)
            && status.state == State::Done
        {
            let seconds = finished.duration_since(started).as_secs_f64() / status.cases.unwrap_or(1).max(1) as f64;
            let mut inner = self.inner();
            inner.seconds_per_case = 0.5 * inner.seconds_per_case + 0.5 * seconds;
        }
    }

    /// Takes no further jobs. Waiting jobs are interrupted, and the running one ends after its case.
    pub fn close(&self) {
        let mut inner = self.inner();
        inner.is_closing = true;
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        for job in waiting {
            self.end(&job, State::Interrupted, Some("the server was ended before the job began".into()));
        }
        self.wake.notify_one();
    }

    pub fn is_closing(&self) -> bool {
        self.inner().is_closing
    }

    pub fn running(&self) -> Option<Arc<Job>> {
        self.inner().running.clone()
    }

    /// The last job that has measured this, if it began at `since` or later.
    pub fn latest_done(&self, asked: &Asked, since: Timestamp) -> Option<Arc<Job>> {
        let is_it = |job: &&Arc<Job>| {
            let status = job.status();
            status.state == State::Done
                && status.asked == *asked
                && status.started.is_some_and(|started| started >= since)
        };
        self.inner().jobs.values().rev().find(is_it).cloned()
    }
}

impl Inner {
    /// The expected number of seconds that a job still takes.
    fn seconds_left(&self, job: &Job) -> f64 {
        let status = job.status();
        let cases = status.cases.unwrap_or_else(|| status.asked.about_cases());
        let all = self.seconds_per_case * cases as f64;
        let gone = status.started.map_or(0.0, |started| Timestamp::now().duration_since(started).as_secs_f64());
        (all - gone).max(1.0)
    }

    fn tell_places(&self) {
        let mut seconds = self.running.as_ref().map_or(0.0, |job| self.seconds_left(job));
        for (place, job) in self.waiting.iter().enumerate() {
            let place = place + usize::from(self.running.is_some());
            if job.status().place != Some(place) {
                job.update(|status| (status.place, status.expected_wait_s) = (Some(place), Some(seconds.round())));
            }
            seconds += self.seconds_left(job);
        }
    }
}

/// Locks the folder until the file is dropped. The file has the id of the process.
///
/// # Errors
/// Another process holds the lock, or the file cannot be written.
fn locked(folder: &Path) -> Result<std::fs::File> {
    let path = folder.join("lock");
    let mut file = fs_err::OpenOptions::new().write(true).create(true).truncate(false).open(&path)?.into_parts().0;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = fs_err::read_to_string(&path).ok().filter(|id| !id.is_empty());
            let process = holder.map(|id| format!(" (process {id})")).unwrap_or_default();
            let folder = folder.display();
            bail!(
                "{folder}: another server{process} has its jobs here; stop it, or use another target folder (`CARGO_TARGET_DIR` \
                 in a checkout or a package, and otherwise `--output-dir`)"
            );
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(|| path.display().to_string()),
    }
    file.set_len(0)?;
    file.write_all(std::process::id().to_string().as_bytes())?;
    Ok(file)
}

/// The moment that lies `age` before now.
pub fn since(age: std::time::Duration) -> Timestamp {
    Timestamp::now().saturating_sub(age).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(model: &str) -> Asked {
        Asked { models: vec![model.into()], ..Asked::default() }
    }

    #[test]
    fn two_servers_do_not_share_a_folder_of_jobs() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::of(folder.path().to_owned()).apart(folder.path().join("part"));
        let first = Queue::open(&paths, 1).unwrap();
        let job = first.submit(asked("digits"), true).unwrap();
        let error = Queue::open(&paths, 1).err().unwrap();
        let said = format!("another server (process {}) has its jobs here; stop it", std::process::id());
        assert!(error.to_string().contains(&said), "{error:#}");
        assert_eq!(job.state(), State::Queued);
        drop(first);
        assert_eq!(Queue::open(&paths, 1).unwrap().left_over, [job.id()]);
    }

    #[test]
    fn a_new_server_knows_how_long_cases_took_on_earlier_ones() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::of(folder.path().to_owned()).apart(folder.path().join("part"));
        let (started, finished) = (since(std::time::Duration::from_secs(4)), Timestamp::now());
        let status = JobStatus { id: "done".into(), state: State::Done, cases: Some(2), ..JobStatus::default() };
        let status = JobStatus { started: Some(started), finished: Some(finished), ..status };
        Queue::open(&paths, 1).unwrap().keep(&Job::new(status)).unwrap();
        let queue = Queue::open(&paths, 1).unwrap();
        let seconds = queue.inner().seconds_per_case;
        assert!((seconds - 0.5 * (SECONDS_PER_CASE + 2.0)).abs() < 0.1, "{seconds}");
    }

    #[test]
    fn a_job_that_runs_is_not_forgotten_however_many_are_cancelled_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::of(folder.path().to_owned()).apart(folder.path().join("part"));
        let queue = Queue::open(&paths, 1).unwrap();
        let running = queue.submit(asked("digits"), true).unwrap();
        let mut jobs = queue.inner();
        jobs.running = jobs.waiting.pop_front();
        // As if many jobs had come and gone.
        for number in 0..REMEMBERED + 2 {
            let (id, state) = (number.to_string(), State::Cancelled);
            let status = JobStatus { id: id.clone(), state, ..JobStatus::default() };
            jobs.jobs.insert(id, Arc::new(Job::new(status)));
        }
        drop(jobs);
        let last = queue.submit(asked("tenn_eeg"), true).unwrap();
        assert_eq!(queue.jobs().len(), REMEMBERED + 2);
        assert!(queue.job(&running.id()).is_some() && queue.job(&last.id()).is_some() && queue.job("0").is_none());
    }

    #[test]
    fn a_job_that_cannot_be_written_down_takes_no_place_in_the_queue() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::of(folder.path().to_owned()).apart(folder.path().join("part"));
        let queue = Queue::open(&paths, 1).unwrap();
        fs_err::remove_dir_all(&queue.folder).unwrap();
        fs_err::write(&queue.folder, "no folder").unwrap();
        for _ in 0..3 {
            let failure = queue.submit(asked("digits"), true).unwrap_err();
            assert_eq!(failure.code, axum::http::StatusCode::INTERNAL_SERVER_ERROR, "{failure:?}");
        }
        assert!(queue.inner().waiting.is_empty());
    }
}
