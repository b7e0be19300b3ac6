//! The history from end to end: what is kept, what an interruption, a full disk or a second writer leaves, and the
//! examples of the documentation.

mod query;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::support::documents::blocks;
use crate::support::{Run, Workplace, checkout, copy_folder, left_out};
use inferbench::definition::{Case, Status};
use inferbench::history::{CallsWriter, History, LATENCIES, RESULTS, read_records, write_load, write_records};
use inferbench::run_data::{LoadRun, Record};
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;

const RUN: &str = "20260101T000000Z";
const PARQUET: [&str; 4] = ["hardware.parquet", "latencies.parquet", "results.parquet", "run.parquet"];

/// A workplace with one measured and converted run in `target-reports/`, whose id is [`RUN`].
fn measured() -> Workplace {
    let workplace = Workplace::new(&["digits"], &["null"], &[1, 8]);
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    let reports = workplace.path("target-reports");
    let first = History::open(std::slice::from_ref(&reports)).unwrap().latest().unwrap().folder().to_owned();
    copy_run(&first, &reports.join(RUN), 20);
    fs::remove_dir_all(first).unwrap();
    fs::remove_file(reports.join("index.html")).unwrap();
    workplace
}

/// The same results under another id, with this many calls per case, as versions before the Parquet files left a run.
fn copy_run(from: &Path, to: &Path, calls: u64) {
    let id = to.file_name().unwrap().to_str().unwrap();
    fs::create_dir_all(to).unwrap();
    let mut records = read_records(File::open(from.join(RESULTS)).unwrap()).unwrap();
    for record in &mut records {
        record.run_id = id.into();
        record.timestamp = format!("{}-{}-{}T00:00:00Z", &id[..4], &id[4..6], &id[6..8]).parse().unwrap();
    }
    write_records(&records, File::create(to.join(RESULTS)).unwrap()).unwrap();
    let mut manifest: Value = serde_json::from_slice(&fs::read(from.join("manifest.json")).unwrap()).unwrap();
    manifest["run_id"] = id.into();
    fs::write(to.join("manifest.json"), manifest.to_string()).unwrap();
    let host_id = &records[0].host_id;
    let mut writer = CallsWriter::new(id, host_id, File::create(to.join(LATENCIES)).unwrap()).unwrap();
    for record in &records {
        // Values that do not compress: Knuth's MMIX generator.
        let mut state = 1_u64;
        let mut nanoseconds = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            1000 + (state >> 33) % 1000
        };
        let samples: Vec<Vec<u64>> = (0..calls).map(|_| vec![nanoseconds()]).collect();
        writer.append(&record.case().to_string(), &samples, None).unwrap();
    }
    writer.finish().unwrap();
}

/// Adds runs of these days of January to the reports.
fn add_runs(workplace: &Workplace, days: impl IntoIterator<Item = u32>, calls: u64) -> Vec<String> {
    let reports = workplace.path("target-reports");
    let add = |day: u32| {
        let id = format!("202601{day:02}T000000Z");
        copy_run(&reports.join(RUN), &reports.join(&id), calls);
        id
    };
    days.into_iter().map(add).collect()
}

fn import(workplace: &Workplace, sources: &[&str]) -> Command {
    workplace.inferbench(&[&["store", "import", "--history", "other"], sources].concat())
}

/// The runs that a history lists.
#[track_caller]
fn runs(workplace: &Workplace, history: &str) -> Vec<Value> {
    let listed =
        workplace.inferbench(&["store", "list", "--format", "json", "--history", history]).finish().with_code(0);
    serde_json::from_str(&listed.stdout).unwrap()
}

#[track_caller]
fn ids(workplace: &Workplace, history: &str) -> Vec<String> {
    runs(workplace, history).iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect()
}

/// Every file of a folder by its path, without hidden ones.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let visible =
        |entry: &walkdir::DirEntry| entry.depth() == 0 || !entry.file_name().to_string_lossy().starts_with('.');
    let entries = walkdir::WalkDir::new(folder).into_iter().filter_entry(visible).filter_map(Result::ok);
    let files = entries.filter(|entry| entry.file_type().is_file());
    files
        .map(|entry| (entry.path().strip_prefix(folder).unwrap().to_owned(), fs::read(entry.path()).unwrap()))
        .collect()
}

/// The rows of the calls of a run.
fn kept_calls(run: &Path) -> Vec<String> {
    let file = SerializedFileReader::new(File::open(run.join(LATENCIES)).unwrap()).unwrap();
    file.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect()
}

fn cut(path: &Path) {
    let bytes = fs::read(path).unwrap();
    // Half of a file with two rows may be its header, which is a whole file.
    fs::write(path, &bytes[..bytes.len() * 2 / 3]).unwrap();
}

#[test]
fn a_conversion_is_a_run_of_the_history() {
    let workplace = Workplace::new(&["digits"], &["null"], &[1, 8]);
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    let listed = runs(&workplace, "target-reports");
    let calls: usize = workplace.records().iter().filter_map(|record| record.iterations).sum();
    assert!(calls > 0);
    assert_eq!((&listed[0]["cases"], &listed[0]["calls"]), (&2.into(), &calls.into()));
    let history = History::open(&[workplace.path("target-reports")]).unwrap();
    let run = history.latest().unwrap();
    assert!(PARQUET.iter().all(|file| run.folder().join(file).is_file()));
    let of_csv = read_records(File::open(run.folder().join(RESULTS)).unwrap()).unwrap();
    assert_eq!(run.records().unwrap(), of_csv);
    assert_eq!(run.machine().unwrap().unwrap().host_id, of_csv[0].host_id);
    assert_eq!(kept_calls(run.folder()).len(), calls);

    let before = content(&workplace.path("target-reports"));
    workplace.inferbench(&["convert"]).finish().with_code(0);
    assert_eq!(content(&workplace.path("target-reports")), before);
    import(&workplace, &[]).finish().with_code(0);
    assert_eq!(content(&workplace.path("other")).len(), content(run.folder()).len());
}

#[test]
fn good_results_are_not_replaced_by_fewer() {
    let workplace = Workplace::new(&["digits"], &["null"], &[1, 8]);
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    let first = workplace.latest_run().read_manifest().unwrap().run_id;
    let before = content(&workplace.path("target-reports").join(&first));
    // It overwrites Criterion's files of batch size 1.
    workplace.inferbench(&["run", "--noplot", "/1$"]).finish().with_code(0);
    let refused = workplace.inferbench(&["convert", "--run", &first]).finish().with_code(2);
    refused.saying(&["is kept with 2 measured cases", "would be replaced by one with 1", "--replace"]);
    assert_eq!(content(&workplace.path("target-reports").join(&first)), before);
    workplace.inferbench(&["convert", "--run", &first, "--replace"]).finish().with_code(0);
    let history = History::open(&[workplace.path("target-reports")]).unwrap();
    assert_eq!(history.get(&first).unwrap().facts().unwrap().cases_ok, 1);
}

#[test]
fn a_run_whose_calls_were_removed_is_not_replaced_by_its_records_alone() {
    let workplace = measured();
    import(&workplace, &[]).finish().with_code(0);
    workplace.inferbench(&["store", "export", "all.csv"]).finish().with_code(0);
    let prune = ["store", "prune", "--history", "other", "--keep", "0", "--only-calls"];
    workplace.inferbench(&prune).finish().with_code(0);
    let before = content(&workplace.path("other"));
    let refused = import(&workplace, &["all.csv"]).finish().with_code(2);
    refused.saying(&["is kept with 2 measured cases and 0 calls", "2 and 0, without manifest", "--replace"]);
    assert_eq!(content(&workplace.path("other")), before);
    import(&workplace, &["all.csv", "--replace"]).finish().with_code(0).saying(&["replaced"]);
    assert!(!workplace.path(&format!("other/{RUN}/manifest.json")).exists());
}

#[test]
fn a_replaced_run_keeps_what_others_put_into_its_folder() {
    let workplace = measured();
    import(&workplace, &[]).finish().with_code(0);
    workplace.write(&format!("other/{RUN}/notes.txt"), "mine");
    add_runs(&workplace, [1], 30);
    import(&workplace, &[RUN]).finish().with_code(0).saying(&["replaced"]);
    assert_eq!(fs::read(workplace.path(&format!("other/{RUN}/notes.txt"))).unwrap(), b"mine");
    assert_eq!(runs(&workplace, "other")[0]["calls"], 60);
}

#[test]
fn a_second_import_changes_nothing() {
    let workplace = measured();
    add_runs(&workplace, 2..4, 10);
    import(&workplace, &[]).finish().with_code(0).saying(&["added: 20260101T000000Z (2 cases, 40 calls)"]);
    let before = content(&workplace.path("other"));
    import(&workplace, &[RUN, RUN, "target-reports"]).finish().with_code(0).saying(&["there already"]);
    assert_eq!(content(&workplace.path("other")), before);
    assert_eq!(ids(&workplace, "other"), [RUN, "20260102T000000Z", "20260103T000000Z"]);
    // Into itself: folders of older versions get their Parquet files.
    workplace.inferbench(&["store", "import"]).finish().with_code(0).saying(&["replaced"]);
    fs::remove_file(workplace.path("target-reports/index.html")).unwrap();
    assert_eq!(content(&workplace.path("target-reports")), before);
}

#[test]
fn what_is_exported_is_what_was_imported() {
    let workplace = measured();
    add_runs(&workplace, 2..4, 10);
    let load = LoadRun { run_id: "20260105T000000Z".into(), ..LoadRun::default() };
    write_load(&workplace.path("target-reports"), &load).unwrap();
    fs::create_dir_all(workplace.path("target-reports/loads/newer")).unwrap();
    workplace.write("target-reports/loads/newer/load.json", "{");
    let copied = "copied besides the runs: 1 load test";
    import(&workplace, &[]).finish().with_code(0).saying(&[copied, "left out: "]);
    let again = import(&workplace, &["target-reports"]).finish().with_code(0);
    assert!(!again.stderr.contains(copied), "{}", again.stderr);
    workplace.inferbench(&["store", "export", "copy", "--history", "other"]).finish().with_code(0);
    assert_eq!(content(&workplace.path("copy")), content(&workplace.path("other")));
    assert!(workplace.path("copy/loads/20260105T000000Z/load.json").is_file());
    let prune = workplace.inferbench(&["store", "prune", "--run", "20260105T000000Z"]).finish().with_code(2);
    prune.saying(&["20260105T000000Z is a load test, in ", "`--run` chooses runs only"]);
    workplace.inferbench(&["store", "export", "all.csv", "--run", RUN]).finish().with_code(0);
    let read = |path: &str| -> Vec<Record> { read_records(File::open(workplace.path(path)).unwrap()).unwrap() };
    assert_eq!(read("all.csv"), read(&format!("target-reports/{RUN}/results.csv")));
    workplace.inferbench(&["store", "import", "all.csv", "--store", "bare"]).finish().with_code(0);
    assert_eq!(runs(&workplace, "bare")[0]["calls"], 0);
    assert_eq!(ids(&workplace, "all.csv"), [RUN]);
}

#[test]
fn two_machines_may_have_a_run_of_one_id() {
    let workplace = measured();
    import(&workplace, &[]).finish().with_code(0);
    workplace.inferbench(&["store", "export", "all.csv"]).finish().with_code(0);
    let host = &read_records(File::open(workplace.path("all.csv")).unwrap()).unwrap()[0].host_id;
    let text = fs::read_to_string(workplace.path("all.csv")).unwrap().replace(host.as_str(), "abcd1234");
    workplace.write("all.csv", text);
    import(&workplace, &["all.csv"]).finish().with_code(0).saying(&["added"]);
    import(&workplace, &["all.csv"]).finish().with_code(0).saying(&["there already"]);
    assert_eq!(ids(&workplace, "other"), [RUN, RUN]);
    assert!(workplace.path(&format!("other/{RUN}-abcd1234")).is_dir());
}

#[test]
fn two_runs_of_one_second_are_both_kept() {
    let workplace = measured();
    import(&workplace, &[]).finish().with_code(0);
    workplace.inferbench(&["store", "export", "all.csv"]).finish().with_code(0);
    let text = fs::read_to_string(workplace.path("all.csv")).unwrap().replace("T00:00:00Z", "T00:00:00.5Z");
    workplace.write("all.csv", text);
    import(&workplace, &["all.csv", "--replace"]).finish().with_code(0).saying(&["added"]);
    assert_eq!(ids(&workplace, "other"), [RUN, RUN]);
}

#[test]
fn the_results_in_the_current_folder_are_those_of_a_run() {
    let workplace = measured();
    let other = workplace.path("other").display().to_string();
    let mut command = workplace.inferbench(&["store", "import", "results.csv", "--history", &other]);
    command.current_dir(workplace.path("target-reports").join(RUN)).finish().with_code(0).saying(&["added"]);
}

#[test]
fn what_was_imported_is_reported_and_compared_like_the_rest() {
    let workplace = measured();
    add_runs(&workplace, [2], 10);
    copy_folder(&workplace.path(&format!("target-reports/{RUN}")), &workplace.path(&format!("elsewhere/{RUN}")));
    fs::remove_dir_all(workplace.path(&format!("target-reports/{RUN}"))).unwrap();
    let roots = ["--history", "target-reports", "--history", "elsewhere"];
    let both = workplace.inferbench(&[&["report", "--all"], roots.as_slice()].concat()).finish().with_code(0);
    assert!(both.stdout.contains(RUN) && both.stdout.contains("20260102T000000Z"), "{}", both.stdout);
    let compare = ["compare", RUN, "20260102T000000Z"];
    workplace.inferbench(&compare).finish().with_code(2).saying(&["no run, file or baseline"]);
    let compared = workplace.inferbench(&[compare.as_slice(), &roots].concat()).finish();
    assert!(compared.stdout.contains("digits"), "{}{}", compared.stdout, compared.stderr);
    workplace
        .inferbench(&["report", "--history", "nowhere"])
        .finish()
        .with_code(2)
        .saying(&["nowhere: there is no such"]);
}

#[test]
fn a_killed_import_leaves_whole_runs() {
    let workplace = measured();
    add_runs(&workplace, 2..25, 3000);
    workplace.inferbench(&["store", "import", "--history", "whole"]).finish().with_code(0);
    let whole = content(&workplace.path("whole"));
    let log = workplace.path("log");
    for milliseconds in (0..).step_by(60) {
        let mut importing = import(&workplace, &[]).start(&log);
        thread::sleep(Duration::from_millis(milliseconds));
        importing.kill();
        let ended = importing.wait().success();
        for (path, bytes) in content(&workplace.path("other")) {
            assert!(whole[&path] == bytes, "{} after {milliseconds} ms", path.display());
        }
        let kept = fs::read_dir(workplace.path("other")).into_iter().flatten().map(|entry| entry.unwrap().path());
        for run in kept.filter(|path| !path.file_name().unwrap().to_string_lossy().starts_with('.')) {
            assert!(PARQUET.iter().all(|file| run.join(file).is_file()), "{} after {milliseconds} ms", run.display());
        }
        if ended {
            break;
        }
    }
    assert!(content(&workplace.path("other")) == whole);
}

#[test]
fn writers_at_once_lose_nothing() {
    let workplace = measured();
    add_runs(&workplace, 2..8, 500);
    let log = |index: usize| workplace.path(&format!("log-{index}"));
    let mut writers: Vec<_> = (0..3).map(|index| import(&workplace, &[]).start(&log(index))).collect();
    for (index, writer) in writers.iter_mut().enumerate() {
        assert!(writer.wait().success(), "{}", fs::read_to_string(log(index)).unwrap());
    }
    workplace.inferbench(&["store", "import", "--history", "one-by-one"]).finish().with_code(0);
    assert!(content(&workplace.path("other")) == content(&workplace.path("one-by-one")));
}

#[test]
fn a_file_cut_short_is_named_and_costs_no_other_run() {
    let workplace = measured();
    add_runs(&workplace, [2], 10);
    let latencies = workplace.path("target-reports/20260102T000000Z/latencies.parquet");
    let whole = fs::read(&latencies).unwrap();
    cut(&latencies);
    let imported = import(&workplace, &[]).finish().with_code(2);
    imported.saying(&["not imported: ", "20260102T000000Z/latencies.parquet: cut short", "added: 20260101T000000Z"]);
    assert_eq!(ids(&workplace, "other"), [RUN]);

    let results = workplace.path(&format!("other/{RUN}/results.csv"));
    cut(&results);
    fs::write(&latencies, whole).unwrap();
    import(&workplace, &["20260102T000000Z"]).finish().with_code(0);
    let listed = workplace.inferbench(&["store", "runs", "--history", "other"]).finish().with_code(2);
    assert!(listed.stdout.contains("20260102T000000Z"), "{}", listed.stdout);
    listed.saying(&["unreadable: ", "results.csv: cut short", "import the run again"]);
    import(&workplace, &[RUN]).finish().with_code(0).saying(&["replaced"]);
    assert_eq!(ids(&workplace, "other"), [RUN, "20260102T000000Z"]);
    cut(&results);
    workplace
        .inferbench(&["report", RUN, "--history", "other"])
        .finish()
        .with_code(2)
        .saying(&["results.csv: cut short"]);
}

#[test]
fn without_room_on_the_disk_the_history_stays_as_it_is() {
    let workplace = measured();
    import(&workplace, &[]).finish().with_code(0);
    let before = content(&workplace.path("other"));
    add_runs(&workplace, [2], 30_000);
    // No file may grow above 24 KiB; the signal that comes with the error is ignored.
    let limited = |arguments: &str| {
        let inferbench = workplace.inferbench(&[]);
        let script = format!("trap '' XFSZ; ulimit -f 48; exec {:?} {arguments}", inferbench.get_program());
        let mut command = Command::new("sh");
        let variables = inferbench.get_envs().filter_map(|(name, value)| Some((name, value?)));
        command.args(["-c", &script]).current_dir(workplace.path("")).envs(variables);
        command.finish()
    };
    limited("store import --history other").with_code(2).saying(&["latencies.parquet", "File too large"]);
    assert_eq!(content(&workplace.path("other")), before);
    assert_eq!(fs::read_dir(workplace.path("other")).unwrap().count(), 1, "nothing hidden is left");
    import(&workplace, &[]).finish().with_code(0);
    assert_eq!(ids(&workplace, "other").len(), 2);
}

#[test]
fn prune_removes_what_it_is_told_to() {
    let workplace = measured();
    add_runs(&workplace, 2..6, 10);
    import(&workplace, &[]).finish().with_code(0);
    let before = content(&workplace.path("other"));
    let prune = |arguments: &[&str], code| {
        workplace.inferbench(&[&["store", "prune", "--history", "other"], arguments].concat()).finish().with_code(code)
    };
    prune(&[], 2);
    prune(&["--only-calls"], 2);
    prune(&["--keep", "x"], 2).saying(&["not a whole number; write 4"]);
    prune(&["--run", "20260109T000000Z"], 2).saying(&["no run \"20260109T000000Z\"", "store runs"]);
    let dry = prune(&["--keep", "3", "--dry-run"], 0);
    assert_eq!(dry.stdout, "would remove 20260101T000000Z\nwould remove 20260102T000000Z\n");
    assert_eq!(content(&workplace.path("other")), before);

    prune(&["--keep", "3", "--only-calls"], 0);
    let calls: Vec<u64> = runs(&workplace, "other").iter().map(|run| run["calls"].as_u64().unwrap()).collect();
    assert_eq!(calls, [0, 0, 20, 20, 20]);
    prune(&["--before", "soon"], 2).saying(&["not a time; write 30d, 12h, 6mo or 2026-01-31"]);
    prune(&["--before", "2026-01-03"], 0);
    assert_eq!(ids(&workplace, "other"), ["20260103T000000Z", "20260104T000000Z", "20260105T000000Z"]);
    prune(&["--run", "20260104T000000Z"], 0);
    prune(&["--keep", "0"], 0);
    assert!(ids(&workplace, "other").is_empty());
    assert!(prune(&["--keep", "0"], 0).stdout.is_empty());
}

#[test]
fn runs_are_listed_with_what_was_measured_and_found_by_it() {
    let workplace = Workplace::new(&[], &[], &[1]);
    let add = |day: u32, rows: &[(&str, &str, Status, f64)]| {
        let run_id = format!("2026010{day}T000000Z");
        let folder = workplace.path("target-reports").join(&run_id);
        fs::create_dir_all(&folder).unwrap();
        let record = |&(model, backend, status, ms): &(&str, &str, Status, f64)| {
            let run = Record {
                run_id: run_id.clone(),
                suite: "quick".into(),
                rustc_version: "rustc 1".into(),
                ..Record::default()
            };
            Record { status, latency_p50_ms: Some(ms), ..run.about(&Case::new(model, backend, 1)) }
        };
        let records: Vec<Record> = rows.iter().map(record).collect();
        write_records(&records, File::create(folder.join(RESULTS)).unwrap()).unwrap();
    };
    use Status::{Ok, WrongOutput};
    add(1, &[("net", "ort", Ok, 2.0), ("net", "candle", Ok, 1.25), ("net", "tract", WrongOutput, 0.5)]);
    add(2, &[("a", "ort", Ok, 2.0), ("b", "ort", Ok, 2.0), ("c", "ort", Ok, 2.0), ("net", "candle", Ok, 1.0)]);
    let listed = |filters: &[&str]| {
        let all = [&["store", "runs"], filters].concat();
        workplace.inferbench(&all).finish().with_code(0).stdout
    };
    let text = listed(&[]);
    let cells = |line: usize| text.lines().nth(line).unwrap().split("  ").map(str::trim).filter(|it| !it.is_empty());
    let cells = |line: usize| cells(line).take(6).collect::<Vec<_>>();
    assert_eq!(cells(0), ["run", "models", "backends", "fastest", "cases", "ok"]);
    let one = ["20260101T000000Z", "net", "ort, candle, tract", "candle-cpu-f32/1 1.25 ms", "3", "2"];
    assert_eq!(cells(2), one, "{text}");
    assert_eq!(cells(3), ["20260102T000000Z", "a, b and 2 more", "ort, candle", "ort 3, candle 1", "4", "4"], "{text}");
    let only =
        |filters: &[&str]| listed(filters).lines().skip(2).map(|line| line.trim()[..8].to_owned()).collect::<Vec<_>>();
    assert_eq!(only(&["--model", "net"]), ["20260101", "20260102"]);
    assert_eq!(only(&["--model", "net", "--backend", "tract,tch"]), ["20260101"]);
    assert_eq!(only(&["--model", "x,c"]), ["20260102"]);
    assert!(only(&["--backend", "tch"]).is_empty());
    let facts: Value = serde_json::from_str(&listed(&["--model", "c", "--format", "json"])).unwrap();
    assert_eq!((&facts[0]["models"], &facts[0]["fastest_p50_ms"]), (&"a, b, c, net".into(), &Value::Null), "{facts}");
}

#[test]
fn what_is_no_history_is_said_to_be_none() {
    let workplace = measured();
    fs::create_dir_all(workplace.path("notes")).unwrap();
    workplace.write("notes/notes.txt", "mine");
    let runs = |history: &str| workplace.inferbench(&["store", "runs", "--history", history]).finish();
    runs("other").with_code(2).saying(&["no history in other", "inferbench store import"]);
    runs("notes/notes.txt").with_code(2).saying(&["notes.txt: not a results.csv of inferbench"]);
    import(&workplace, &["nothing"]).finish().with_code(2).saying(&["no run \"nothing\""]);
    import(&workplace, &["notes"]).finish().with_code(2).saying(&["notes is neither a run nor a folder of runs"]);
    fs::create_dir_all(workplace.path("other")).unwrap();
    assert!(ids(&workplace, "other").is_empty());
    // A folder that is in the way is left alone.
    fs::create_dir_all(workplace.path(&format!("other/{RUN}/mine"))).unwrap();
    import(&workplace, &[]).finish().with_code(2).saying(&["exists and is not a run"]);
}

/// The block of the guide that reads the history with pandas.
fn pandas_example() -> String {
    let blocks = blocks(&checkout().join("src/guide/history.md"), "python");
    blocks.into_iter().find(|block| block.contains("pandas.read_parquet")).unwrap()
}

#[test]
fn the_documented_pandas_example_runs_as_it_is_there() {
    let example = pandas_example();
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"))).unwrap_or_default();
    let own = cache.join("inferbench/pandas/bin/python");
    let python = if own.is_file() { own } else { "python3".into() };
    let has_pandas = Command::new(&python).args(["-c", "import pandas, pyarrow"]).output();
    if !has_pandas.is_ok_and(|output| output.status.success()) {
        left_out(format_args!("{} has no pandas with pyarrow", python.display()));
        return;
    }
    let workplace = measured();
    add_runs(&workplace, [2], 10);
    workplace.inferbench(&["store", "import"]).finish().with_code(0);
    let mut command = Command::new(&python);
    let shown = command.args(["-c", &example]).current_dir(workplace.path("")).finish().with_code(0);
    assert!(shown.stdout.contains("digits") && shown.stdout.contains("null"), "{}", shown.stdout);
}
