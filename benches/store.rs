//! The history with ten million calls and with ten thousand runs: how long they take to write, to list and to query.
//!
//! `cargo bench --features duckdb --bench store` prints seconds; for percentiles, also those of pandas over the same
//! files. pandas is looked for in `${XDG_CACHE_HOME:-~/.cache}/inferbench/pandas` (a virtual environment with pandas
//! and pyarrow), then in `python3`. The histories take about 400 MB in the target folder and are removed afterwards.
//! `-- --quick` makes them small.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::Result;
use clap::Parser;
use inferbench::definition::{Case, Suite};
use inferbench::history::{Database, History, LATENCIES, NewRun, write_database};
use inferbench::machine::Machine;
use inferbench::run_data::{CriterionArguments, Distributions, Manifest, Mode};

const RUNS: usize = 10;
const QUICK_RUNS: usize = 1;
const CASES: usize = 20;
const SAMPLES: usize = 100;
const CALLS_PER_SAMPLE: usize = 500;
const MILLION: usize = CASES * SAMPLES * CALLS_PER_SAMPLE;
const ROUNDS: usize = 7;
const MANY_RUNS: usize = 10_000;
const QUICK_MANY_RUNS: usize = 20;

const PERCENTILES: &str = "SELECT \"case\", quantile_disc(nanoseconds, [0.5, 0.99]) AS q, q[1], q[2] FROM raw_benchmark_data GROUP BY \"case\"";
const ONE_MODEL: &str = "SELECT timestamp, latency_p50_ms FROM benchmark_results WHERE model = 'model-3' AND status = 'ok' ORDER BY timestamp";

const PANDAS: &str = "
import glob, sys, time
import pandas
for _ in range(3):
    start = time.perf_counter()
    calls = pandas.concat(pandas.read_parquet(file, columns=['case', 'nanoseconds']) for file in glob.glob(sys.argv[1]))
    read = time.perf_counter() - start
    found = calls.groupby('case', observed=True).nanoseconds.quantile([0.5, 0.99], interpolation='lower').unstack()
    total = time.perf_counter() - start
    print(f'  pandas {pandas.__version__}: {total:.2f} s, of which reading {read:.2f} s ({len(found)} cases, {len(calls)} calls)')
";

fn main() -> Result<()> {
    let arguments = CriterionArguments::parse_from(std::env::args().skip(1));
    if arguments.mode() != Mode::Measure {
        return Ok(());
    }
    let (runs, many) = if arguments.quick { (QUICK_RUNS, QUICK_MANY_RUNS) } else { (RUNS, MANY_RUNS) };
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("store-bench");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root)?;
    many_calls(&root, runs)?;
    many_runs(&root, many)?;
    Ok(fs::remove_dir_all(&root)?)
}

fn many_calls(root: &Path, runs: usize) -> Result<()> {
    let folder = root.join("calls");
    let mut sorted: Vec<Vec<u64>> = vec![Vec::new(); CASES];
    let mut seconds = Vec::new();
    for run in 0..runs {
        let calls: Vec<Vec<Vec<u64>>> = (0..CASES).map(|case| samples(run, case)).collect();
        let start = Instant::now();
        write_run(&folder, run, &calls)?;
        seconds.push(start.elapsed().as_secs_f64());
        for (all, samples) in sorted.iter_mut().zip(&calls) {
            all.extend(samples.iter().flatten());
        }
    }
    let history = History::open(std::slice::from_ref(&folder))?;
    let sizes = history.runs().iter().map(|run| Ok(fs::metadata(run.folder().join(LATENCIES))?.len()));
    let bytes: u64 = sizes.sum::<Result<u64>>()?;
    println!(
        "{MILLION} calls written, from memory to the synced folder: {}; {:.1} bytes per call",
        spread(&mut seconds),
        bytes as f64 / (runs * MILLION) as f64
    );

    println!("p50 and p99 of {CASES} cases over {} calls:", runs * MILLION);
    let expected: Vec<[u64; 2]> = sorted.iter_mut().map(|calls| nearest_rank(calls)).collect();
    let file = root.join("history.duckdb");
    let start = Instant::now();
    write_database(history.runs(), &file)?;
    let export = start.elapsed().as_secs_f64();
    percentiles("DuckDB over the runs, opened each time", &expected, || {
        let history = History::open(std::slice::from_ref(&folder))?;
        Database::over(history.runs(), history.roots())
    })?;
    percentiles("DuckDB over its own tables, opened each time", &expected, || Database::open(&file))?;
    println!("  (written in {export:.2} s, {:.0} MB)", fs::metadata(&file)?.len() as f64 / 1e6);
    pandas(&folder.join("*").join(LATENCIES));
    Ok(())
}

/// Runs without calls, which these commands do not read. All are copies of the first.
fn many_runs(root: &Path, runs: usize) -> Result<()> {
    let folder = root.join("runs");
    let start = Instant::now();
    write_run(&folder, 0, &vec![Vec::new(); CASES])?;
    let first = History::open(std::slice::from_ref(&folder))?.latest()?.folder().to_owned();
    for run in 1..runs {
        let copy = folder.join(started(run)?.strftime("%Y%m%dT%H%M%SZ").to_string());
        fs::create_dir(&copy)?;
        for entry in fs::read_dir(&first)? {
            let entry = entry?;
            fs::copy(entry.path(), copy.join(entry.file_name()))?;
        }
    }
    println!("{runs} runs of {CASES} cases, copied in {:.0} s:", start.elapsed().as_secs_f64());
    let measure = |what: &str, work: &dyn Fn() -> Result<usize>, expected: usize| -> Result<()> {
        let mut seconds = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            assert_eq!(work()?, expected, "{what}");
            seconds.push(start.elapsed().as_secs_f64());
        }
        println!("  {what}: {} (aim: under 2 s)", spread(&mut seconds));
        Ok(())
    };
    let open = || History::open(std::slice::from_ref(&folder));
    let last_ten = || -> Result<usize> { open()?.runs().iter().take(10).map(|run| Ok(run.records()?.len())).sum() };
    measure("the records of the last 10 runs", &last_ten, 10 * CASES)?;
    measure("the facts of all runs", &|| open()?.runs().iter().map(|run| Ok(run.facts()?.cases)).sum(), runs * CASES)?;
    measure(
        "SQL over one model",
        &|| {
            let history = open()?;
            Ok(Database::over(history.runs(), history.roots())?.query(ONE_MODEL)?.rows.len())
        },
        runs * CASES / 10,
    )
}

/// Around a millisecond, with a long tail; the values differ in every run.
fn samples(run: usize, case: usize) -> Vec<Vec<u64>> {
    let mut state = (run * CASES + case + 1) as u64;
    let mut call = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let noise = (state >> 33) % 100_000;
        let tail = if state.is_multiple_of(97) { (state >> 20) % 3_000_000 } else { 0 };
        1_000_000 + case as u64 * 10_000 + noise + tail
    };
    (0..SAMPLES).map(|_| (0..CALLS_PER_SAMPLE).map(|_| call()).collect()).collect()
}

/// Each run begins a minute after the one before it.
fn started(run: usize) -> Result<jiff::Timestamp> {
    Ok(jiff::Timestamp::from_second(1_767_225_600 + 60 * run as i64)?)
}

/// Writes a run: what `convert` does once Criterion's files are read.
fn write_run(root: &Path, run: usize, calls: &[Vec<Vec<u64>>]) -> Result<()> {
    let started = started(run)?;
    let run_id = started.strftime("%Y%m%dT%H%M%SZ").to_string();
    let manifest = Manifest {
        finished: Some(started),
        machine: Machine { host_id: "bench".into(), ..Machine::default() },
        ..Manifest::begun(run_id, started, Suite::new("generated", Vec::new()), Vec::new())
    };
    let mut new = NewRun::create(root, &manifest.run_id, &manifest.machine.host_id)?;
    let mut records = Vec::new();
    for (index, samples) in calls.iter().enumerate() {
        let case = Case::new(&format!("model-{}", index % 10), "ort", 1 + index / 10);
        let mut record = manifest.run_columns().about(&case);
        record.latency_p50_ms = Some(1.0 + (run + index) as f64 / 1e4);
        new.append_calls(&record.case_id, samples, None)?;
        records.push(record);
    }
    new.publish(&manifest, &records, &[], &Distributions::new(Default::default()), false)?;
    Ok(())
}

fn nearest_rank(calls: &mut [u64]) -> [u64; 2] {
    calls.sort_unstable();
    [0.5, 0.99].map(|p| calls[(p * calls.len() as f64).ceil() as usize - 1])
}

fn percentiles(what: &str, expected: &[[u64; 2]], open: impl Fn() -> Result<Database>) -> Result<()> {
    let mut seconds = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let answer = open()?.query(PERCENTILES)?;
        seconds.push(start.elapsed().as_secs_f64());
        let mut found: Vec<[u64; 2]> =
            answer.rows.iter().map(|row| [2, 3].map(|index| row[index].as_u64().expect("a number"))).collect();
        let mut expected = expected.to_vec();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "DuckDB's percentiles are those of the calls");
    }
    println!("  {what}: {}", spread(&mut seconds));
    Ok(())
}

fn spread(seconds: &mut [f64]) -> String {
    seconds.sort_by(f64::total_cmp);
    format!("{:.2} s ({:.2} to {:.2})", seconds[seconds.len() / 2], seconds[0], seconds[seconds.len() - 1])
}

fn pandas(files: &Path) {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home).unwrap_or_default();
    let own = cache.join("inferbench/pandas/bin/python");
    let python = if own.is_file() { own } else { "python3".into() };
    let status = Command::new(&python).args(["-c", PANDAS]).arg(files).status();
    if !status.is_ok_and(|status| status.success()) {
        println!("  pandas: left out, {} has no pandas with pyarrow", python.display());
    }
}
