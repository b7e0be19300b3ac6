//! The store with ten million calls: how long a million take to append, and p50 and p99 of every case to find.
//!
//! `cargo bench --features duckdb --bench store` prints seconds, beside those of pandas over the same files. pandas is looked for in
//! `${XDG_CACHE_HOME:-~/.cache}/inferbench/pandas` (a virtual environment with pandas and pyarrow), then in `python3`. The
//! store takes about 120 MB in the target folder and is removed afterwards.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use clap::Parser;
use inferbench::definition::{Case, Status};
use inferbench::harness::{CriterionArguments, Mode};
use inferbench::record::{Record, RunIdentity};
use inferbench::store::{CallsWriter, Database, LATENCIES, Store, StoredRun, write_database};

const RUNS: usize = 10;
const CASES: usize = 20;
const SAMPLES: usize = 100;
const CALLS_PER_SAMPLE: usize = 500;
const MILLION: usize = CASES * SAMPLES * CALLS_PER_SAMPLE;
const ROUNDS: usize = 7;

const SQL: &str = "SELECT \"case\", quantile_disc(nanoseconds, [0.5, 0.99]) AS q, q[1], q[2] FROM raw_benchmark_data GROUP BY \"case\"";

const PANDAS: &str = "
import sys, time
import pandas
for _ in range(3):
    start = time.perf_counter()
    calls = pandas.read_parquet(sys.argv[1], columns=['case', 'nanoseconds'])
    read = time.perf_counter() - start
    found = calls.groupby('case', observed=True).nanoseconds.quantile([0.5, 0.99], interpolation='lower').unstack()
    total = time.perf_counter() - start
    print(f'  pandas {pandas.__version__}: {total:.2f} s, of which reading {read:.2f} s ({len(found)} cases, {len(calls)} calls)')
";

fn main() {
    if CriterionArguments::parse_from(std::env::args().skip(1)).mode() != Mode::Measure {
        return;
    }
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("store-bench");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).expect("the target folder can be written");
    let folder = root.join("store");

    let mut sorted: Vec<Vec<u64>> = vec![Vec::new(); CASES];
    let mut seconds = Vec::new();
    for run in 0..RUNS {
        let calls: Vec<Vec<Vec<u64>>> = (0..CASES).map(|case| samples(run, case)).collect();
        let start = Instant::now();
        append(&root, &folder, run, &calls);
        seconds.push(start.elapsed().as_secs_f64());
        for (all, samples) in sorted.iter_mut().zip(&calls) {
            all.extend(samples.iter().flatten());
        }
    }
    let bytes: u64 = Store::read(&folder)
        .and_then(|store| store.files(inferbench::store::Table::Calls))
        .expect("the store was just written")
        .iter()
        .filter_map(|file| Some(fs::metadata(file).ok()?.len()))
        .sum();
    println!(
        "{MILLION} calls appended, from memory to the synced store: {} (aim: seconds); {:.1} bytes a call",
        spread(&mut seconds),
        bytes as f64 / (RUNS * MILLION) as f64
    );

    println!("p50 and p99 of {CASES} cases over {} calls (aim: well under a second):", RUNS * MILLION);
    let expected: Vec<[u64; 2]> = sorted.iter_mut().map(|calls| nearest_rank(calls)).collect();
    let file = root.join("history.duckdb");
    let start = Instant::now();
    let store = Store::read(&folder).expect("the store was just written");
    let places = store.places().expect("the store was just written");
    write_database(store, &places, &file).expect("the target folder can be written");
    let export = start.elapsed().as_secs_f64();
    query("DuckDB over the Parquet files, opened each time", &expected, || Database::over(Store::read(&folder)?));
    query("DuckDB over its own tables, opened each time", &expected, || Database::open(&file));
    let megabytes = fs::metadata(&file).map_or(0.0, |metadata| metadata.len() as f64 / 1e6);
    println!("  (written from the Parquet files in {export:.2} s, {megabytes:.0} MB)");
    pandas(&folder.join("raw_benchmark_data"));
    let _ = fs::remove_dir_all(&root);
}

/// Around a millisecond, with a long tail; other values in every run.
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

/// What `convert --store` does once Criterion's files are read.
fn append(root: &Path, store: &Path, run: usize, calls: &[Vec<Vec<u64>>]) {
    let identity = RunIdentity {
        run_id: format!("202601{:02}T000000Z", run + 1),
        timestamp: format!("2026-01-{:02}T00:00:00Z", run + 1).parse().expect("a valid time"),
        git_commit: None,
        git_dirty: None,
        host_id: "bench".into(),
        suite: "generated".into(),
        rustc_version: String::new(),
    };
    let cases: Vec<Case> = (0..CASES).map(|case| Case::new(&format!("model-{case}"), "ort", 1)).collect();
    let records: Vec<Record> = cases.iter().map(|case| Record::new(&identity, case, Status::Ok, None)).collect();
    let latencies = root.join(LATENCIES);
    let file = File::create(&latencies).expect("the target folder can be written");
    let mut writer = CallsWriter::new(&identity.run_id, file).expect("the target folder can be written");
    for (case, samples) in cases.iter().zip(calls) {
        writer.append(&case.to_string(), samples, None).expect("the target folder can be written");
    }
    let (_, count) = writer.finish().expect("the target folder can be written");
    assert_eq!(count, MILLION);
    let stored = StoredRun::new(records, None, Some((latencies, count))).expect("records of one run");
    Store::write(store).and_then(|store| store.import(&[stored], false)).expect("the target folder can be written");
}

fn nearest_rank(calls: &mut [u64]) -> [u64; 2] {
    calls.sort_unstable();
    [0.5, 0.99].map(|p| calls[(p * calls.len() as f64).ceil() as usize - 1])
}

fn query(what: &str, expected: &[[u64; 2]], open: impl Fn() -> Result<Database, String>) {
    let mut seconds = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let answer = open().and_then(|database| database.query(SQL)).expect("the query is right");
        seconds.push(start.elapsed().as_secs_f64());
        let mut found: Vec<[u64; 2]> =
            answer.rows.iter().map(|row| [2, 3].map(|index| row[index].as_u64().expect("a number"))).collect();
        let mut expected = expected.to_vec();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "DuckDB's percentiles are those of the calls");
    }
    println!("  {what}: {}", spread(&mut seconds));
}

fn spread(seconds: &mut [f64]) -> String {
    seconds.sort_by(f64::total_cmp);
    format!("{:.2} s ({:.2} to {:.2})", seconds[seconds.len() / 2], seconds[0], seconds[seconds.len() - 1])
}

fn pandas(table: &Path) {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home).unwrap_or_default();
    let own = cache.join("inferbench/pandas/bin/python");
    let python = if own.is_file() { own } else { "python3".into() };
    let status = Command::new(&python).args(["-c", PANDAS]).arg(table).status();
    if !status.is_ok_and(|status| status.success()) {
        println!("  pandas: left out, {} has no pandas with pyarrow", python.display());
    }
}
