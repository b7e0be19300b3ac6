//! Notes about requests besides their times, and the columns that follow from them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use hyper::header::{HeaderMap, RETRY_AFTER};

use super::connection::Seen;
use super::fault::{Fault, Kind};
use super::grpc_status;
use crate::definition::Status;
use crate::machine::{TICKS_PER_SECOND, own_ticks};
use crate::run_data::{LoadResult, Verdict, with_note};
use crate::statistics::SortedCalls;

/// The longest wait that a server can ask for.
const LONGEST_RETRY: Duration = Duration::from_secs(3600);

/// Counts and times of a trial, from all of its connections.
#[derive(Default)]
pub struct Notes {
    connects_ns: Vec<u64>,
    /// By HTTP status and gRPC status.
    statuses: BTreeMap<(u16, Option<u16>), usize>,
    /// By kind: the number of faults, and the words of the first.
    faults: BTreeMap<Kind, (usize, String)>,
    first_bytes_ns: Vec<u64>,
    sent_bytes: u64,
    received_bytes: u64,
    retry_after: Option<Duration>,
    /// Tokens of answers that were not streamed.
    prompt_tokens: usize,
    output_tokens: usize,
    tokens_by: BTreeSet<Cow<'static, str>>,
    /// Answers whose outputs may have too few rows.
    without_rows: usize,
}

/// Tokens of an answer that was not streamed.
#[derive(Clone, Copy, Debug, Default)]
pub struct WholeTokens {
    pub prompt: usize,
    pub output: usize,
}

impl Notes {
    pub fn add(&mut self, seen: &Seen, fault: Option<&Fault>) {
        let connects = seen.connects.iter().map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.connects_ns.extend(connects);
        if let Some(status) = seen.status {
            *self.statuses.entry((status.as_u16(), grpc_status::status(&seen.headers))).or_default() += 1;
        }
        // A refusal may come faster than any answer.
        if let Some(first_byte) = seen.first_byte.filter(|_| fault.is_none()) {
            self.first_bytes_ns.push(u64::try_from(first_byte.as_nanos()).unwrap_or(u64::MAX));
        }
        self.sent_bytes += seen.sent_bytes;
        self.received_bytes += seen.received_bytes;
        self.retry_after = self.retry_after.max(retry_after(&seen.headers));
        if let Some(fault) = fault {
            self.faults.entry(fault.kind).or_insert_with(|| (0, fault.detail.clone())).0 += 1;
        }
    }

    /// Notes the tokens of an answer that was not streamed, and how tokens were counted.
    pub fn add_tokens(&mut self, whole: Option<WholeTokens>, by: Option<Cow<'static, str>>) {
        self.tokens_by.extend(by);
        if let Some(WholeTokens { prompt, output }) = whole {
            self.prompt_tokens += prompt;
            self.output_tokens += output;
        }
    }

    /// Notes whether the outputs of an answer may have too few rows.
    pub fn add_rows(&mut self, lacks_rows: bool) {
        self.without_rows += usize::from(lacks_rows);
    }

    /// Adds these notes to the row of a trial. A wrong answer makes its status `wrong-output`, whatever its times are.
    pub fn into_row(self, mut row: LoadResult) -> LoadResult {
        let list = |counts: Vec<(String, usize)>| {
            let words: Vec<String> = counts.into_iter().map(|(what, count)| format!("{what} × {count}")).collect();
            Some(words.join(", ")).filter(|words| !words.is_empty())
        };
        row.connects = Some(self.connects_ns.len());
        if let Some(times) = SortedCalls::new(self.connects_ns) {
            row.connect_p50_ms = Some(times.percentile(0.5) as f64 / 1e6);
            row.connect_max_ms = Some(times.max() as f64 / 1e6);
        }
        let status = |(http, grpc): (u16, Option<u16>)| grpc.map_or(http.to_string(), |grpc| format!("grpc {grpc}"));
        row.statuses = list(self.statuses.into_iter().map(|(key, count)| (status(key), count)).collect());
        row.errors = list(self.faults.iter().map(|(kind, (count, _))| (kind.to_string(), *count)).collect());
        if let Some(times) = SortedCalls::new(self.first_bytes_ns) {
            row.first_byte_p50_ms = Some(times.percentile(0.5) as f64 / 1e6);
            row.first_byte_p99_ms = Some(times.percentile(0.99) as f64 / 1e6);
        }
        row.sent_bytes = Some(self.sent_bytes);
        row.received_bytes = Some(self.received_bytes);
        row.retry_after_s = self.retry_after.map(|time| time.as_secs_f64());
        let by: Vec<Cow<'static, str>> = self.tokens_by.into_iter().collect();
        row.tokens_by = Some(by.join(", ")).filter(|by| !by.is_empty());
        if self.output_tokens > 0 {
            row.prompt_tokens = Some(self.prompt_tokens).filter(|tokens| *tokens > 0);
            row.output_tokens = Some(self.output_tokens);
            row.output_tokens_per_s = Some(self.output_tokens as f64 / row.seconds).filter(|rate| rate.is_finite());
        }
        if self.without_rows > 0 {
            let note = format!(
                "{} answers have no output with a row per sample ({}): the server leaves the number of rows open, so only `--reference` shows whether rows are missing",
                self.without_rows, row.batch_size
            );
            row.message = with_note(row.message, note);
        }
        if let Some(worst) = self.faults.iter().max_by_key(|(kind, (count, _))| (kind.is_wrong_answer(), *count)) {
            let (errors, (kind, (_, words))) = (row.errors.clone().unwrap_or_default(), worst);
            row.message = with_note(row.message, format!("{errors}; the first {kind}: {words}"));
            if kind.is_wrong_answer() {
                row.status = Status::WrongOutput;
                row.verdict = Some(Verdict::Failed);
            }
        }
        row
    }
}

/// How long a server asks to wait, by `Retry-After` in seconds. Dates are ignored.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_RETRY))
}

/// Measures the processor time of this process during a trial.
pub struct ProcessorClock {
    begin: Instant,
    ticks: Option<u64>,
}

impl ProcessorClock {
    pub fn start() -> Self {
        ProcessorClock { begin: Instant::now(), ticks: own_ticks() }
    }

    /// The mean number of processors in use since the start.
    pub fn processors(&self) -> Option<f64> {
        let used = own_ticks()?.saturating_sub(self.ticks?) as f64 / TICKS_PER_SECOND as f64;
        Some(used / self.begin.elapsed().as_secs_f64()).filter(|processors| processors.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::StatusCode;

    #[test]
    fn errors_are_counted_by_their_kinds_and_wrong_answers_are_not_measured() {
        let mut notes = Notes::default();
        let seen =
            |status: u16| Seen { status: StatusCode::from_u16(status).ok(), received_bytes: 10, ..Seen::default() };
        notes.add(&seen(200), None);
        let mut busy = Seen { first_byte: Some(Duration::from_millis(1)), ..seen(503) };
        busy.headers.insert(RETRY_AFTER, "3".parse().unwrap());
        notes.add(&busy, Some(&Fault::new(Kind::Busy, "status 503")));
        notes.add(&seen(200), None);
        notes.add(&Seen::default(), Some(&Fault::new(Kind::Timeout, "no answer")));
        notes.add(&Seen::default(), Some(&Fault::new(Kind::Timeout, "no answer again")));
        let row = notes.into_row(LoadResult { status: Status::Ok, ..LoadResult::default() });
        assert_eq!(row.statuses.as_deref(), Some("200 × 2, 503 × 1"));
        assert_eq!((row.errors.as_deref(), row.first_byte_p50_ms), (Some("timeout × 2, busy × 1"), None));
        assert_eq!((row.retry_after_s, row.received_bytes, row.status), (Some(3.0), Some(30), Status::Ok));
        assert_eq!(row.message.as_deref(), Some("timeout × 2, busy × 1; the first timeout: no answer"));
        let mut wrong = Notes::default();
        wrong.add(&seen(200), Some(&Fault::new(Kind::WrongValues, "output logits is off")));
        (0..5).for_each(|_| wrong.add(&Seen::default(), Some(&Fault::new(Kind::Timeout, "no answer"))));
        let row = wrong.into_row(LoadResult { status: Status::Ok, ..LoadResult::default() });
        assert_eq!((row.status, row.verdict), (Status::WrongOutput, Some(Verdict::Failed)));
        assert!(row.message.unwrap().ends_with("wrong-values × 1; the first wrong-values: output logits is off"));
    }

    #[test]
    fn rows_that_may_be_missing_are_no_fault() {
        let mut notes = Notes::default();
        [true, false, true].into_iter().for_each(|lacks_rows| notes.add_rows(lacks_rows));
        let row = notes.into_row(LoadResult { status: Status::Ok, batch_size: 4, ..LoadResult::default() });
        assert_eq!((row.status, row.errors), (Status::Ok, None));
        assert!(row.message.unwrap().starts_with("2 answers have no output with a row per sample (4)"));
    }

    #[test]
    fn a_retry_after_is_seconds() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers).map(|time| time.as_secs())
        };
        assert_eq!(
            [of("2"), of("99999999"), of("Wed, 21 Oct 2026 07:28:00 GMT"), of("-1")],
            [Some(2), Some(3600), None, None]
        );
    }
}
