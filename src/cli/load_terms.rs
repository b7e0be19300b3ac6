//! The terms of a load test: flags, and the table `[load]` of a suite.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, CommandFactory, Parser};

use crate::definition::{NULL, Suite};
use crate::harness::{Split, splits};
use crate::load::{Arrivals, parse_lengths, parse_service, parse_token_length, parse_trace};
use crate::run_data::{LoadTerms, RequestLengths, Scenario, ServiceTime, TokenLength};
use crate::selection::Selection;
use crate::selection::values::{duration, megabytes, rate};
use crate::statistics::queries_for;

/// The shortest time of a trial, in seconds, by default.
const SECONDS: f64 = 10.0;
const SECONDS_OF_A_SEARCH: f64 = 2.0;
/// How often a search is repeated by default.
const SEARCHES: usize = 3;
/// The most queries of a trial, which keeps each query until it ends.
const MOST_QUERIES: f64 = 1e7;
/// By default, a trial of a search has enough queries to be certain with this many of them over the bound.
const OVER_IN_A_SEARCH: u64 = 5;

/// The flags that say how cases are put under load. A suite has them as keys of its table `[load]`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct TermArguments {
    /// How requests arrive: as in MLPerf LoadGen, or from a number of concurrent users [default: server; with `--concurrency`, concurrent]
    #[arg(long, value_enum)]
    scenario: Option<Scenario>,
    /// Requests per second of the server scenario: `300/s` [default: that of the suite; 20/s for suite quick]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<f64>,
    /// Users of the concurrent scenario; each sends the next request after the answer to the last
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) concurrency: Option<u32>,
    /// Tokens per prompt of a language model: `32`, or `lognormal:32,0.5` with the median and the standard deviation of the logarithm
    /// [default: those of the case]
    #[arg(long, value_name = "LENGTH", value_parser = parse_token_length, conflicts_with = "lengths")]
    prompt_tokens: Option<TokenLength>,
    /// Tokens per answer of a language model, in the same form
    #[arg(long, value_name = "LENGTH", value_parser = parse_token_length, conflicts_with = "lengths")]
    output_tokens: Option<TokenLength>,
    /// A file with one line per request to a language model: the number of prompt tokens, a tab, and the number of output tokens
    #[arg(long, value_name = "FILE")]
    pub(super) lengths: Option<PathBuf>,
    /// A CSV file of arrivals: a header with `time` in seconds, and `input` and `output` in tokens for language models
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "lengths", "prompt_tokens", "output_tokens"])]
    trace: Option<PathBuf>,
    /// Service-level objective: the longest time to the first token, `200ms`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub ttft: Option<f64>,
    /// Service-level objective: the longest time per output token after the first, `50ms`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub tpot: Option<f64>,
    /// The percentile of the latency that has to be within the bound [default: 90 of a single stream, otherwise 99]
    #[arg(long, value_name = "PERCENTILE", value_parser = percentile)]
    percentile: Option<f64>,
    /// The latency that the percentile must not exceed: `20ms`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    bound: Option<f64>,
    /// The same as `--percentile 99 --bound TIME`
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with_all = ["percentile", "bound"])]
    p99: Option<f64>,
    /// The seed of arrival times and of drawn lengths [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=u64::from(u32::MAX)))]
    pub(super) seed: Option<u64>,
    /// The shortest time of a trial [default: 10s, and 2s in a search; with `--queries`, as long as they take]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<f64>,
    /// The smallest number of queries of a trial [default in a search, which never has fewer: enough to be certain with 5 over the bound]
    #[arg(long, value_name = "N")]
    queries: Option<usize>,
    /// How often a search is repeated, each time in a fresh process and with other seeds; several give an interval [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    searches: Option<u32>,
    /// Sessions that serve at the same time; `auto` tries all ways to divide the processors evenly [default: 1]
    #[arg(long, value_name = "N|auto")]
    pub(super) instances: Option<Instances>,
    /// Threads that call one session at the same time and share its threads: ONNX Runtime (on cpu) and OpenVINO allow it [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) callers: Option<u32>,
    /// The most requests that share a call [default: 1]
    #[arg(long, value_name = "N")]
    pub(super) max_batch: Option<usize>,
    /// The longest time that a request waits for others to share its call [default: not at all]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) max_delay: Option<f64>,
    /// Soak test: watch memory, latency and throttling in windows over the duration
    #[arg(long)]
    soak: bool,
    /// With `--soak`: the growth of memory per hour beyond which the trial fails and ends, `50MB/h`
    #[arg(long, value_name = "SIZE", value_parser = growth)]
    pub(super) max_growth: Option<f64>,
    /// How long calls of the null backend take, to compare the results with theory: `2ms`, `exponential:2ms`, or
    /// `0.5ms+100ms/1000` with a stall every 1,000 calls
    #[arg(long, value_name = "TIME", value_parser = parse_service)]
    pub(super) service_time: Option<ServiceTime>,
}

/// The table `[load]` as a command line.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct OfSuite {
    #[command(flatten)]
    terms: TermArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instances {
    Auto,
    Number(usize),
}

impl FromStr for Instances {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "auto" {
            return Ok(Instances::Auto);
        }
        let number = text.parse().context("neither a number nor auto")?;
        ensure!((1..=1024).contains(&number), "not from 1 to 1024");
        Ok(Instances::Number(number))
    }
}

/// # Errors
/// It is a pipe, which can be read only once.
fn check_is_file(file: &Path) -> Result<()> {
    ensure!(!file.exists() || file.is_file(), "{}: it is read several times: write it into a file", file.display());
    Ok(())
}

fn percentile(text: &str) -> Result<f64> {
    let number: f64 = text.parse().context("not a number")?;
    ensure!((50.0..=99.99).contains(&number), "not from 50 to 99.99");
    // Not `number / 100.0`, which makes 0.9990000000000001 of 99.9.
    Ok((number * 1e6).round() / 1e8)
}

/// Reads `50MB/h` as megabytes.
fn growth(text: &str) -> Result<f64> {
    megabytes(text.strip_suffix("/h").context("write it as 50MB/h")?)
}

impl TermArguments {
    /// These terms, completed by the suite's table `[load]`. A term overrides the keys of the suite that contradict it.
    ///
    /// # Errors
    /// A key of the table does not exist, or its value is wrong.
    pub fn over_suite(self, suite: &Suite, is_search: bool) -> Result<Self> {
        let own = self.with_percentile();
        let suite = from_table(&suite.load).with_context(|| format!("[load] of suite {:?}", suite.name))?;
        let mut suite = suite.with_percentile();
        if is_search || own.concurrency.is_some() || own.scenario.is_some_and(|own| suite.scenario() != own) {
            (suite.scenario, suite.rate, suite.concurrency, suite.trace) = (None, None, None, None);
        } else if own.rate.is_some() || own.trace.is_some() {
            (suite.scenario, suite.concurrency) = (None, None);
        }
        if matches!(own.scenario, Some(Scenario::Single | Scenario::Multi)) {
            (suite.instances, suite.callers) = (None, None);
        }
        if own.trace.is_some() {
            (suite.rate, suite.lengths, suite.prompt_tokens, suite.output_tokens) = (None, None, None, None);
            (suite.duration, suite.queries) = (None, None);
        } else if own.rate.or(own.concurrency.map(f64::from)).is_some() {
            suite.trace = None;
        }
        if own.callers.is_some() {
            suite.instances = None;
        } else if own.instances.is_some() {
            suite.callers = None;
        }
        if own.lengths.is_some() {
            (suite.prompt_tokens, suite.output_tokens) = (None, None);
        } else if own.prompt_tokens.or(own.output_tokens).is_some() {
            suite.lengths = None;
        }
        if is_search {
            (suite.trace, suite.soak, suite.max_growth) = (None, false, None);
        } else {
            suite.searches = None;
        }
        macro_rules! own_or_suites {
            ($($name:ident)*) => {
                TermArguments { soak: own.soak || suite.soak, $($name: own.$name.or(suite.$name),)* }
            };
        }
        Ok(own_or_suites! {
            scenario rate concurrency prompt_tokens output_tokens lengths trace ttft tpot percentile bound p99 seed duration
            queries searches instances callers max_batch max_delay max_growth service_time
        })
    }

    /// Replaces `p99` by `percentile` and `bound`.
    fn with_percentile(self) -> Self {
        let percentile = self.p99.map(|_| 0.99).or(self.percentile);
        TermArguments { percentile, bound: self.p99.or(self.bound), p99: None, ..self }
    }

    fn scenario(&self) -> Scenario {
        let usual = if self.concurrency.is_some() { Scenario::Concurrent } else { Scenario::Server };
        self.scenario.unwrap_or(usual)
    }

    fn instances(&self) -> Instances {
        self.instances.unwrap_or(Instances::Number(1))
    }

    /// # Errors
    /// Terms contradict each other, or one is missing.
    pub fn terms(&self, selection: &Selection, is_search: bool) -> Result<LoadTerms> {
        let &TermArguments { duration, queries, service_time: service, .. } = self;
        let most_batch = self.max_batch.unwrap_or(1);
        let scenario = self.scenario();
        let is_server = scenario == Scenario::Server;
        let bound = self.bound;
        let has_bound = bound.or(self.ttft).or(self.tpot).is_some();
        let percentile = self.percentile.unwrap_or(scenario.usual_percentile());
        ensure!(
            is_server || self.rate.is_none() && !is_search,
            "only the server scenario has a rate: leave `--rate` or `search` out, or else `--scenario` and `--concurrency`"
        );
        ensure!(!is_search || has_bound, "a search needs a bound, such as `--p99 20ms`");
        ensure!(is_search || self.searches.is_none(), "`--searches` is for a search: `inferbench load search`");
        ensure!(
            !self.soak || self.instances() != Instances::Auto,
            "a soak test is one trial of each case: say the number of `--instances`"
        );
        let trace = self.trace()?;
        ensure!(
            is_server && !is_search || trace.is_none(),
            "`--trace` is for the server scenario, and not for a search"
        );
        let arrivals = trace.map(|it| it.arrivals_ns);
        ensure!(
            arrivals.is_none() || duration.is_none() && queries.is_none(),
            "a trace says how many requests there are and when they come: leave `--duration` and `--queries` out"
        );
        ensure!(!is_search || self.rate.is_none(), "a search finds the rate: leave `--rate` out");
        ensure!(
            !is_server || is_search || self.rate.is_some() || arrivals.is_some(),
            "the server scenario needs a rate, such as `--rate 300/s`, or a trace: `--trace FILE`"
        );
        let is_concurrent = scenario == Scenario::Concurrent;
        ensure!(
            is_concurrent == self.concurrency.is_some(),
            "the concurrent scenario, and no other, has a number of users: `--concurrency 4`"
        );
        let has_one_query = matches!(scenario, Scenario::Single | Scenario::Multi);
        ensure!(
            !has_one_query || self.instances() == Instances::Number(1),
            "the scenarios single and multi have one query at a time, which one session answers: leave `--instances` out"
        );
        let has_callers = self.callers.is_some_and(|callers| callers > 1);
        ensure!(
            !has_callers || !has_one_query,
            "the scenarios single and multi have one query at a time: leave `--callers` out"
        );
        ensure!(
            !has_callers || self.instances() == Instances::Number(1),
            "`--callers` is for one session: leave `--instances` out"
        );
        let lengths = self.lengths()?;
        ensure!(self.soak || self.max_growth.is_none(), "`--max-growth` is for a soak test: say `--soak`");
        ensure!(
            !self.soak || !is_search && scenario != Scenario::Offline,
            "a soak test is one trial over a time: of a rate, users or a stream"
        );
        ensure!(
            lengths.is_some() || self.ttft.or(self.tpot).is_none(),
            "`--ttft` and `--tpot` are for requests that are answered with tokens: say their number, such as `--output-tokens 16`"
        );
        ensure!(
            lengths.is_none() || most_batch == 1 && scenario != Scenario::Multi,
            "requests to a language model have a call each: leave `--max-batch` and the scenario multi out"
        );
        let is_null = selection.backend == [NULL];
        ensure!(
            service.is_none() || is_null,
            "`--service-time` is for `--backend null`: others take the time that they take"
        );
        ensure!((1..=1024).contains(&most_batch), "`--max-batch` is from 1 to 1024");
        ensure!(
            self.max_delay.is_none() || most_batch > 1,
            "requests wait for others to share a call: `--max-delay` needs `--max-batch`"
        );
        let usual_seconds = if is_search { SECONDS_OF_A_SEARCH } else { SECONDS };
        let usual_queries = if is_search { queries_for(percentile, OVER_IN_A_SEARCH, 1.0) as usize } else { 1 };
        let seconds = duration.unwrap_or(if queries.is_some() { 0.0 } else { usual_seconds });
        // With fewer, LoadGen's rule accepts no trial, and a search would say that no rate is within the bound.
        let least_queries = if is_search { queries_for(percentile, 0, 1.0) as usize } else { 1 };
        let queries = queries.unwrap_or(usual_queries).max(least_queries);
        let in_all = (queries as f64).max(seconds * self.rate.unwrap_or(0.0));
        ensure!(in_all <= MOST_QUERIES, "a trial of {in_all:.0} queries is more than {MOST_QUERIES} queries");
        let last_s = |arrivals: &Vec<u64>| arrivals.last().map_or(0.0, |last| *last as f64 / 1e9);
        // Requests that come all at once have no rate.
        let rate_of =
            |arrivals: &Vec<u64>| Some((arrivals.len() - 1) as f64 / last_s(arrivals)).filter(|it| it.is_finite());
        let (seconds, queries) = match &arrivals {
            Some(arrivals) => (last_s(arrivals), arrivals.len()),
            None => (seconds, queries),
        };
        Ok(LoadTerms {
            scenario,
            rate: self.rate.or(arrivals.as_ref().and_then(rate_of)),
            arrivals,
            percentile,
            bound_ms: bound.map(|seconds| 1e3 * seconds),
            ttft_bound_ms: self.ttft.map(|seconds| 1e3 * seconds),
            tpot_bound_ms: self.tpot.map(|seconds| 1e3 * seconds),
            lengths,
            users: self.concurrency.map_or(1, |users| users as usize),
            seed: self.seed.unwrap_or(1),
            seconds,
            queries,
            instances: 1,
            callers: self.callers.map_or(1, |callers| callers as usize),
            most_batch,
            most_delay_ms: 1e3 * self.max_delay.unwrap_or(0.0),
            service,
            is_search,
            searches: if is_search { self.searches.map_or(SEARCHES, |searches| searches as usize) } else { 1 },
            search: 0,
            first_rate: None,
            is_watched: self.soak,
            most_growth_mb_per_h: self.max_growth,
        })
    }

    fn trace(&self) -> Result<Option<Arrivals>> {
        let Some(file) = &self.trace else { return Ok(None) };
        check_is_file(file)?;
        let read = parse_trace(&fs_err::read_to_string(file)?).with_context(|| file.display().to_string())?;
        ensure!(read.arrivals_ns.len() as f64 <= MOST_QUERIES, "{}: more than {MOST_QUERIES} requests", file.display());
        Ok(Some(read))
    }

    /// These terms with these tokens of prompts and answers, unless other lengths are given. `prompt` is absent if the
    /// prompts are texts.
    #[cfg(feature = "http-load")]
    #[must_use]
    pub fn with_usual_lengths(self, prompt: Option<usize>, output: usize) -> Self {
        // A trace that cannot be read says so later.
        let is_listed = self.lengths().is_ok_and(|lengths| matches!(lengths, Some(RequestLengths::Listed(_))));
        let or_usual = |own: Option<TokenLength>, usual: Option<usize>| {
            own.or(usual.filter(|_| !is_listed).map(TokenLength::Fixed))
        };
        TermArguments {
            prompt_tokens: or_usual(self.prompt_tokens, prompt),
            output_tokens: or_usual(self.output_tokens, Some(output)),
            ..self
        }
    }

    /// These terms without bounds of tokens. One of these becomes the bound of the latency if there is no other.
    #[cfg(feature = "http-load")]
    #[must_use]
    pub fn without_tokens(self) -> Self {
        let bound = self.bound.or(self.ttft).or(self.tpot);
        TermArguments { bound, ttft: None, tpot: None, ..self }
    }

    /// The lengths of requests that are answered with tokens. Returns `None` if requests are calls.
    pub fn lengths(&self) -> Result<Option<RequestLengths>> {
        if let Some(lengths) = self.trace()?.and_then(|trace| trace.lengths) {
            return Ok(Some(RequestLengths::Listed(lengths)));
        }
        if let Some(file) = &self.lengths {
            check_is_file(file)?;
            let lengths = parse_lengths(&fs_err::read_to_string(file)?).with_context(|| file.display().to_string())?;
            return Ok(Some(RequestLengths::Listed(lengths)));
        }
        let &TermArguments { prompt_tokens: prompt, output_tokens: output, .. } = self;
        Ok(prompt.or(output).map(|_| RequestLengths::Drawn { prompt, output }))
    }

    /// How the processors are divided among sessions.
    ///
    /// # Errors
    /// No way to divide them has sessions with so many threads.
    pub fn splits(&self, threads: Option<usize>) -> Result<Vec<Split>> {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let found: Vec<Split> = match self.instances() {
            Instances::Number(instances) => {
                vec![Split { instances, threads: threads.unwrap_or((processors / instances).max(1)) }]
            }
            Instances::Auto => {
                let all = splits(processors);
                all.into_iter().filter(|split| threads.is_none_or(|threads| split.threads == threads)).collect()
            }
        };
        ensure!(
            !found.is_empty(),
            "no session has {} threads if {processors} processors are divided evenly: leave `--threads` out, or say the number of `--instances`",
            threads.unwrap_or_default()
        );
        Ok(found)
    }
}

/// Reads the table `[load]`: the names of its keys are those of the flags.
fn from_table(table: &toml::Table) -> Result<TermArguments> {
    let command = OfSuite::command();
    let keys: Vec<String> =
        command.get_arguments().filter_map(|flag| Some(flag.get_long()?.replace('-', "_"))).collect();
    let mut words = Vec::new();
    for (key, value) in table {
        ensure!(keys.contains(&key.replace('-', "_")), "there is no key {key:?}; there are {}", keys.join(", "));
        let flag = format!("--{}", key.replace('_', "-"));
        match value {
            toml::Value::Boolean(true) => words.push(flag),
            toml::Value::Boolean(false) => {}
            toml::Value::String(text) => words.push(format!("{flag}={text}")),
            toml::Value::Integer(_) | toml::Value::Float(_) => words.push(format!("{flag}={value}")),
            _ => bail!("{key} is a text or a number"),
        }
    }
    let parsed = OfSuite::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        anyhow::anyhow!("{}", text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned())
    });
    Ok(parsed?.terms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_of_a_search_has_the_queries_that_load_gen_needs() {
        let of = |table: &str, is_search| {
            let terms = from_table(&table.parse().unwrap()).unwrap().with_percentile();
            terms.terms(&Selection::default(), is_search).unwrap().queries
        };
        assert_eq!(of("p99 = '20ms'\nqueries = 100", true), 459);
        assert_eq!(of("bound = '20ms'\npercentile = 90\nqueries = 1", true), 44);
        assert_eq!(of("p99 = '20ms'\nqueries = 2000", true), 2000);
        assert_eq!(of("p99 = '20ms'\nrate = '100/s'\nqueries = 100", false), 100);
    }

    #[test]
    fn a_percentile_is_the_nearest_fraction() {
        assert_eq!(
            [percentile("99.9").unwrap(), percentile("55").unwrap(), percentile("99").unwrap()],
            [0.999, 0.55, 0.99]
        );
    }

    #[test]
    fn a_trace_goes_before_the_arrivals_of_the_suite() {
        let text = "models = []\nbackends = ['null']\nbatch_sizes = [1]\n[load]\n";
        for table in ["concurrency = 4", "scenario = 'single'", "rate = '5/s'", "duration = '5s'\nqueries = 9"] {
            let suite: Suite = toml::from_str(&format!("{text}{table}")).unwrap();
            let own = from_table(&"trace = 'trace.csv'".parse().unwrap()).unwrap();
            let asked = own.over_suite(&suite, false).unwrap();
            assert_eq!((asked.scenario(), asked.rate, asked.concurrency), (Scenario::Server, None, None), "{table}");
            assert_eq!((asked.duration, asked.queries), (None, None), "{table}");
        }
    }

    #[test]
    fn a_trace_has_its_own_length() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs_err::write(file.path(), "time\n0\n1\n").unwrap();
        let of = |flags: &str| {
            let table = format!("trace = '{}'\n{flags}", file.path().display());
            let terms = from_table(&table.parse().unwrap()).unwrap().terms(&Selection::default(), false);
            terms.map(|terms| terms.queries).map_err(|error| error.to_string())
        };
        assert_eq!(of(""), Ok(2));
        for flags in ["duration = '30s'", "queries = 100"] {
            assert!(of(flags).unwrap_err().contains("leave `--duration` and `--queries` out"), "{flags}");
        }
    }

    #[cfg(feature = "http-load")]
    #[test]
    fn prompts_that_are_texts_have_no_usual_length() {
        let of = |prompt: Option<usize>| {
            let terms = from_table(&"rate = '5/s'".parse().unwrap()).unwrap();
            terms.with_usual_lengths(prompt, 16).lengths().unwrap()
        };
        let drawn = |prompt| Some(RequestLengths::Drawn { prompt, output: Some(TokenLength::Fixed(16)) });
        assert_eq!((of(Some(32)), of(None)), (drawn(Some(TokenLength::Fixed(32))), drawn(None)));
    }

    #[test]
    fn processors_that_cannot_be_divided_so_are_no_load_test_of_nothing() {
        let of = |table: &str, threads| from_table(&table.parse().unwrap()).unwrap().splits(threads);
        let auto = "instances = 'auto'";
        assert!(of(auto, None).is_ok() && of("instances = 2", Some(100_000)).is_ok());
        let error = of(auto, Some(100_000)).unwrap_err().to_string();
        assert!(error.contains("no session has 100000 threads"), "{error}");
    }
}
