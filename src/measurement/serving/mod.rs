//! Sessions that serve requests, each in a thread of its own, and the trials that they go through.

mod generator;
mod queue;
mod trials;
mod watch;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use self::queue::{Queue, Waiting, Work};
pub use self::trials::{Observer, Trials};
pub use self::watch::Watch;
use crate::definition::CaseFailure;
use crate::load::{Bounds, Served, Trial};
use crate::measurement::unwinding;

/// A session as a server: what it does with the requests that share a call.
pub trait Serve {
    /// Computes `requests` requests in one call, from number `first` on, and returns what is known of their
    /// answer when it is complete.
    fn serve(&mut self, first: usize, requests: usize) -> Result<Answer, CaseFailure>;
}

impl<S: Serve + ?Sized> Serve for Box<S> {
    fn serve(&mut self, first: usize, requests: usize) -> Result<Answer, CaseFailure> {
        (**self).serve(first, requests)
    }
}

/// What is known of an answer besides its time.
#[derive(Default)]
pub struct Answer {
    pub prompt_tokens: usize,
    /// When each token was complete. Empty if the answer does not consist of tokens.
    pub tokens: Vec<Instant>,
    /// How many tokens there are, if they do not come one by one.
    pub token_count: Option<usize>,
    /// When the answer was complete, if the session has spent time on it since.
    pub ended: Option<Instant>,
    /// How long the user waits before the next request, because the server has asked for it.
    pub pause: Duration,
    /// Whether the request has no answer.
    pub has_failed: bool,
    /// Whether it has no answer because the trial was cut.
    pub is_open: bool,
    /// Whether no request was sent, because no more are allowed.
    pub is_unsent: bool,
}

/// Users, each of whom sends the next request when the answer to the last one is complete.
#[derive(Clone, Copy, Debug)]
pub struct Users {
    pub users: usize,
    pub least_requests: usize,
    pub least_time: Duration,
    pub expected: Expected,
}

/// How requests share calls.
#[derive(Clone, Copy, Debug)]
pub struct Batching {
    /// The most requests per call.
    pub most: usize,
    /// How long a request waits for others.
    pub delay: Duration,
}

/// Sessions that are loaded and wait for requests.
pub struct Instances<'a> {
    queue: &'a Queue,
}

/// Queries of a session that takes them one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Samples per query. Its calls take as many samples as may share a call.
    pub samples: usize,
    pub least_queries: usize,
    pub least_time: Duration,
    pub expected: Expected,
}

/// How much a trial is expected to log. The memory is taken before the trial, so that the log does not look like
/// growth.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expected {
    pub requests: usize,
    pub tokens: usize,
}

/// A trial can no longer pass if more than `most_over` answers broke a bound.
#[derive(Clone, Copy, Debug)]
pub struct Hope {
    pub bounds: Bounds,
    pub most_over: usize,
}

/// The most requests of a trial whose length is a time: those of a null backend would fill the memory.
const MOST_BY_TIME: usize = 10_000_000;
/// How long after its last arrival a trial waits for answers, in lengths of its schedule, and at least.
const PATIENCE_LENGTHS: u32 = 2;
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens `count` sessions, each in its own thread, and calls `run` while they serve. Sessions are opened one after the
/// other, so that they do not disturb each other's warm-up.
///
/// # Errors
/// A session cannot be opened, or `run` fails.
pub fn with_instances<S: Serve, T>(
    count: usize,
    batching: Batching,
    open: impl Fn(usize) -> Result<S, CaseFailure> + Sync,
    run: impl FnOnce(&Instances<'_>) -> Result<T, CaseFailure>,
) -> Result<T, CaseFailure> {
    let queue = Queue::default();
    thread::scope(|scope| {
        let (queue, open) = (&queue, &open);
        let _closing = Closing(queue);
        let start = |number: usize| {
            let (opened, ready) = mpsc::channel();
            let session = move || match unwinding(|| open(number)) {
                Ok(mut server) => {
                    let _ = opened.send(Ok(()));
                    if let Err(failure) = unwinding(|| serve_all(queue, batching, &mut server)) {
                        queue.fail(failure);
                    }
                }
                Err(failure) => drop(opened.send(Err(failure))),
            };
            let spawned = thread::Builder::new().spawn_scoped(scope, session);
            spawned.map_err(|error| CaseFailure::failed(format!("no thread for session {number}: {error}")))?;
            ready.recv().unwrap_or_else(|_| Err(CaseFailure::failed("a session was not opened")))
        };
        (0..count).try_for_each(start).and_then(|()| run(&Instances { queue }))
    })
}

/// Closes the queue when it is dropped, also by a panic: `thread::scope` waits for the sessions, and they wait for the
/// queue.
struct Closing<'a>(&'a Queue);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What a session does until the queue is closed.
fn serve_all(queue: &Queue, batching: Batching, server: &mut impl Serve) -> Result<(), CaseFailure> {
    while let Some(work) = queue.take(batching) {
        match work {
            Work::Requests(requests) => {
                let first = requests.first().map_or(0, |request| request.number);
                let started = Instant::now();
                let answer = server.serve(first, requests.len())?;
                let ended = answer.ended.unwrap_or_else(Instant::now);
                queue.finish(&requests, started, ended, &answer);
            }
            Work::Stream(stream) => queue.end_stream(serve_stream(queue, stream, batching.most, server)?),
        }
    }
    Ok(())
}

fn serve_stream(
    queue: &Queue,
    stream: Stream,
    most_batch: usize,
    server: &mut impl Serve,
) -> Result<Trial, CaseFailure> {
    let mut trial = Trial {
        served: resident(stream.expected.requests, Served { batch: 1, ..Served::default() }),
        token_gaps_ns: resident(stream.expected.tokens, 1),
        ..Trial::default()
    };
    let begin = Instant::now();
    while !queue.is_ended() && (trial.served.len() < stream.least_queries || begin.elapsed() < stream.least_time) {
        if trial.served.len() >= MOST_BY_TIME {
            queue.cut();
            break;
        }
        let number = trial.served.len();
        let started = Instant::now();
        let mut done = 0;
        let mut answer = Answer::default();
        while done < stream.samples && !answer.is_unsent {
            let together = (stream.samples - done).min(most_batch);
            // A query fails if one of its samples has no answer.
            let has_failed = answer.has_failed;
            answer = server.serve(number * stream.samples + done, together)?;
            answer.has_failed |= has_failed;
            done += together;
        }
        if answer.is_unsent {
            queue.cut();
            break;
        }
        let one = Waiting { number, begin, due: started, since: started };
        let ended = answer.ended.unwrap_or_else(Instant::now);
        trial.served.push(one.served(started, ended, 1, &answer));
        trial.token_gaps_ns.extend(gaps(&answer.tokens));
    }
    Ok(queue.ended(trial))
}

impl Instances<'_> {
    /// Ends the trial for a reason that has nothing to do with the answers: no further request begins.
    pub fn cut(&self) {
        self.queue.cut();
    }

    /// One session takes queries one after the other.
    pub fn stream(&self, stream: Stream) -> Result<Trial, CaseFailure> {
        self.queue.begin(Expected::default(), None);
        self.queue.give_stream(stream);
        self.queue.wait_for_stream()
    }

    /// Users send requests, each the next one when the answer to the last one is complete.
    pub fn concurrent(&self, users: Users) -> Result<Trial, CaseFailure> {
        self.queue.begin(users.expected, None);
        let begin = Instant::now();
        self.queue.refill(users.users, users.least_requests, begin + users.least_time);
        self.queue.give((0..users.users).map(|number| Waiting { number, begin, due: begin, since: begin }));
        let (mut finished, token_gaps_ns) = self.queue.wait_until_finished(usize::MAX, None)?;
        finished.sort_unstable_by_key(|(number, _)| *number);
        let served = finished.into_iter().map(|(_, served)| served).collect();
        Ok(self.queue.ended(Trial { served, token_gaps_ns, ..Trial::default() }))
    }

    /// All requests wait from the beginning, and all sessions take from them.
    pub fn offline(&self, requests: usize) -> Result<Trial, CaseFailure> {
        self.queue.begin(Expected { requests, tokens: 0 }, None);
        let begin = Instant::now();
        self.queue.give((0..requests).map(|number| Waiting { number, begin, due: begin, since: begin }));
        let (finished, token_gaps_ns) = self.queue.wait_until_finished(requests, None)?;
        let served = of_finished(begin, &vec![0; requests], &vec![begin; requests], finished, self.queue.is_cut());
        Ok(self.queue.ended(Trial { served, token_gaps_ns, ..Trial::default() }))
    }

    /// Requests arrive at these times, in nanoseconds from the beginning. `tokens` is the expected number of tokens of
    /// all answers together. The trial ends early if it can no longer pass by `hope`.
    pub fn server(&self, schedule: &[u64], tokens: usize, hope: Option<Hope>) -> Result<Trial, CaseFailure> {
        let length = Duration::from_nanos(schedule.last().copied().unwrap_or(0));
        self.serve(schedule, tokens, hope, Some(length + (PATIENCE_LENGTHS * length).max(PATIENCE)))
    }

    /// The same for the arrivals of a trace, perhaps all at once: all answers are waited for.
    pub fn replay(&self, schedule: &[u64], tokens: usize) -> Result<Trial, CaseFailure> {
        self.serve(schedule, tokens, None, None)
    }

    fn serve(
        &self,
        schedule: &[u64],
        tokens: usize,
        hope: Option<Hope>,
        most: Option<Duration>,
    ) -> Result<Trial, CaseFailure> {
        self.queue.begin(Expected { requests: schedule.len(), tokens }, hope);
        let (begin, issued, generator) = generator::issue(self.queue, schedule);
        let deadline = most.map(|most| begin + most);
        let (finished, token_gaps_ns) = self.queue.wait_until_finished(issued.len(), deadline)?;
        let served = of_finished(begin, &schedule[..issued.len()], &issued, finished, self.queue.is_cut());
        Ok(self.queue.ended(Trial { served, token_gaps_ns, generator: Some(generator), ..Trial::default() }))
    }
}

fn nanoseconds(begin: Instant, moment: Instant) -> u64 {
    u64::try_from(moment.saturating_duration_since(begin).as_nanos()).unwrap_or(u64::MAX)
}

/// The requests in the order of their arrival. Unfinished ones end now, without an answer; if the trial was cut, they
/// are open, because they might have had one.
fn of_finished(
    begin: Instant,
    scheduled: &[u64],
    issued: &[Instant],
    finished: Vec<(usize, Served)>,
    is_cut: bool,
) -> Vec<Served> {
    let end_ns = nanoseconds(begin, Instant::now());
    let open = |(&scheduled_ns, &issued): (&u64, &Instant)| {
        let issued_ns = nanoseconds(begin, issued);
        Served { scheduled_ns, issued_ns, started_ns: end_ns, ended_ns: end_ns, is_open: is_cut, ..Served::default() }
    };
    let mut all: Vec<Served> = scheduled.iter().zip(issued).map(open).collect();
    for (number, served) in finished {
        all[number] = served;
    }
    all
}

/// An empty list with room for `count` elements, whose memory is already resident.
fn resident<T: Clone>(count: usize, filling: T) -> Vec<T> {
    let mut list = vec![filling; count];
    list.clear();
    list
}

/// The times between moments.
fn gaps(moments: &[Instant]) -> impl Iterator<Item = u64> {
    moments.windows(2).map(|pair| nanoseconds(pair[0], pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes no time, and fails if more than four requests share a call.
    struct Counting;

    impl Serve for Counting {
        fn serve(&mut self, _: usize, requests: usize) -> Result<Answer, CaseFailure> {
            if requests > 4 { Err(CaseFailure::failed("more than 4")) } else { Ok(Answer::default()) }
        }
    }

    fn batching(most: usize, delay_ms: u64) -> Batching {
        Batching { most, delay: Duration::from_millis(delay_ms) }
    }

    #[test]
    fn every_request_is_answered_once_and_in_its_order_of_times() {
        let schedule: Vec<u64> = (0..200).map(|number| number * 100_000).collect();
        let trial = with_instances(2, batching(1, 0), |_| Ok(Counting), |it| it.server(&schedule, 0, None)).unwrap();
        assert_eq!(trial.served.iter().map(|it| it.scheduled_ns).collect::<Vec<_>>(), schedule);
        for request in &trial.served {
            assert!(request.batch == 1 && request.scheduled_ns <= request.issued_ns, "{request:?}");
            assert!(request.issued_ns <= request.started_ns && request.started_ns <= request.ended_ns, "{request:?}");
        }
        assert!(!trial.ended_early);
    }

    #[test]
    fn requests_share_calls_up_to_the_most() {
        let trial = with_instances(1, batching(4, 0), |_| Ok(Counting), |it| it.offline(10)).unwrap();
        let batches: Vec<usize> = trial.served.iter().map(|request| request.batch).collect();
        assert_eq!(batches, [4, 4, 4, 4, 4, 4, 4, 4, 2, 2]);
        // Four that come within the delay share a call.
        let schedule = [0, 1000, 2000, 3000];
        let trial =
            with_instances(1, batching(4, 10_000), |_| Ok(Counting), |it| it.server(&schedule, 0, None)).unwrap();
        assert!(trial.served.iter().all(|request| request.batch == 4), "{:?}", trial.served);
    }

    #[test]
    fn a_session_that_fails_is_a_failure_and_no_hang() {
        let failing = with_instances(1, batching(8, 0), |_| Ok(Counting), |it| it.offline(8));
        assert_eq!(failing.unwrap_err().message, "more than 4");
        let never = |_: usize| -> Result<Counting, CaseFailure> { Err(CaseFailure::failed("no file")) };
        assert_eq!(with_instances(2, batching(1, 0), never, |it| it.offline(1)).unwrap_err().message, "no file");
        let panics = |_: usize| -> Result<Counting, CaseFailure> { panic!("a fault") };
        let panicked = with_instances(1, batching(1, 0), panics, |it| it.offline(1)).unwrap_err();
        assert!(panicked.message.ends_with("panicked: a fault"), "{panicked}");
    }

    #[test]
    fn a_trial_that_panics_ends_and_so_do_its_sessions() {
        let (ended, has_ended) = mpsc::channel();
        thread::spawn(move || {
            let run = |_: &Instances<'_>| -> Result<(), CaseFailure> { panic!("a fault") };
            let trial = || with_instances(2, batching(1, 0), |_| Ok(Counting), run);
            let _ = ended.send(std::panic::catch_unwind(trial).is_err());
        });
        assert_eq!(has_ended.recv_timeout(Duration::from_secs(60)), Ok(true));
    }

    #[test]
    fn no_request_is_issued_after_a_session_has_failed() {
        let queue = Queue::default();
        assert!(!queue.is_ended());
        queue.fail(CaseFailure::failed("no memory"));
        assert!(queue.is_ended());
    }

    #[test]
    fn a_stream_has_the_queries_and_the_time_that_it_is_asked_for() {
        let stream =
            Stream { samples: 8, least_queries: 50, least_time: Duration::ZERO, expected: Expected::default() };
        let trial = with_instances(1, batching(4, 0), |_| Ok(Counting), |it| it.stream(stream)).unwrap();
        assert_eq!(trial.served.len(), 50);
        assert!(trial.generator.is_none());
    }

    /// Answers with as many tokens as the number of the request says, from 1 to 3.
    struct Telling;

    impl Serve for Telling {
        fn serve(&mut self, first: usize, _: usize) -> Result<Answer, CaseFailure> {
            thread::sleep(Duration::from_micros(200));
            Ok(Answer {
                prompt_tokens: 5,
                tokens: (0..=first % 3).map(|_| Instant::now()).collect(),
                ..Answer::default()
            })
        }
    }

    /// Takes memory in each call and never gives it back. If it did after a trial, the next one would get the same memory.
    struct Leaking;

    impl Serve for Leaking {
        fn serve(&mut self, _: usize, _: usize) -> Result<Answer, CaseFailure> {
            thread::sleep(Duration::from_millis(1));
            std::mem::forget(std::hint::black_box(vec![1u8; 200_000]));
            Ok(Answer::default())
        }
    }

    #[test]
    fn a_trial_ends_when_its_memory_grows_beyond_the_limit() {
        let least_time = Duration::from_secs(2);
        let stream = Stream { samples: 1, least_queries: 1, least_time, expected: Expected::default() };
        let users = Users { users: 2, least_requests: 1, least_time, expected: Expected::default() };
        let schedule: Vec<u64> = (0..2000).map(|number| number * 2_000_000).collect();
        // Other tests of this process take memory and give it back, but not so much for so long.
        let watch = |most_growth| Watch { length: least_time, most_growth };
        let ended_early = |trial: &dyn Fn(&Instances<'_>) -> Result<Trial, CaseFailure>, most_growth| {
            let open = |_| Ok(Leaking);
            let trial = with_instances(1, batching(1, 0), open, |it| it.watched(watch(most_growth), trial)).unwrap();
            assert!(trial.moments.len() > 10, "{:?}", trial.moments);
            trial.ended_early
        };
        assert!(ended_early(&|it| it.stream(stream), Some(20_000.0)));
        assert!(ended_early(&|it| it.concurrent(users), Some(20_000.0)));
        assert!(ended_early(&|it| it.server(&schedule, 0, None), Some(20_000.0)));
        let short = Stream { least_time: Duration::from_millis(750), ..stream };
        assert!(!ended_early(&|it| it.stream(short), None));
    }

    /// A trial with a number of queries has no length that is known in advance.
    #[test]
    fn a_watched_trial_has_some_hundred_samples_however_long_it_is() {
        let least_time = Duration::from_millis(600);
        let stream = Stream { samples: 1, least_queries: 1, least_time, expected: Expected::default() };
        let watch = Watch { length: Duration::ZERO, most_growth: None };
        let trial = |it: &Instances<'_>| it.watched(watch, |it| it.stream(stream));
        let moments = with_instances(1, batching(1, 0), |_| Ok(Telling), trial).unwrap().moments;
        assert!((10..240).contains(&moments.len()), "{}", moments.len());
        assert!(moments.is_sorted_by_key(|moment| moment.at_ns));
    }

    #[test]
    fn users_ask_again_when_the_answer_is_there() {
        let users = Users { users: 3, least_requests: 30, least_time: Duration::ZERO, expected: Expected::default() };
        let trial = with_instances(2, batching(1, 0), |_| Ok(Telling), |it| it.concurrent(users)).unwrap();
        // Requests that are under way when there are enough are answered, too.
        assert!((30..33).contains(&trial.served.len()), "{}", trial.served.len());
        let at_work = |at: &Served| {
            trial.served.iter().filter(|it| it.issued_ns <= at.issued_ns && it.ended_ns > at.issued_ns).count()
        };
        assert!(trial.served.iter().all(|it| at_work(it) <= 3 && it.batch == 1), "{:?}", trial.served);
        for (number, request) in trial.served.iter().enumerate() {
            assert_eq!((request.tokens, request.prompt_tokens), (number % 3 + 1, 5));
            assert!(request.started_ns < request.first_token_ns && request.first_token_ns <= request.ended_ns);
        }
        let gaps: usize = trial.served.iter().map(|request| request.tokens - 1).sum();
        assert_eq!(trial.token_gaps_ns.len(), gaps);
    }

    #[test]
    fn a_trial_without_hope_ends() {
        struct Slow;
        impl Serve for Slow {
            fn serve(&mut self, _: usize, _: usize) -> Result<Answer, CaseFailure> {
                thread::sleep(Duration::from_millis(2));
                Ok(Answer::default())
            }
        }
        let schedule: Vec<u64> = (0..100_000).map(|number| number * 100_000).collect();
        let hope = Some(Hope { bounds: Bounds { latency_ms: Some(1.0), ..Bounds::default() }, most_over: 5 });
        let trial = with_instances(1, batching(1, 0), |_| Ok(Slow), |it| it.server(&schedule, 0, hope)).unwrap();
        assert!(trial.ended_early && trial.served.len() < schedule.len());
        assert!(trial.served.iter().filter(|request| request.batch == 1).count() >= 6);
    }
}
