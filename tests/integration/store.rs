//! The store from end to end: what is kept, what an interruption, a full disk or a second writer leaves, and the
//! examples of the documentation.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::support::documents::blocks;
use crate::support::{Run, Workplace, checkout};
use inferbench::record::Record;
use inferbench::store::{CallsWriter, LATENCIES, RESULTS, STORE_FILE, read_records, write_records};
use serde_json::Value;

const RUN: &str = "20260101T000000Z";

/// A workplace with one measured and converted run in `target-reports/`, whose id is [`RUN`].
fn measured() -> Workplace {
    let workplace = Workplace::new(&["digits"], &["null"], &[1, 8]);
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    let reports = workplace.path("target-reports");
    let first = inferbench::store::find_results(&reports, None).unwrap();
    copy_run(first.parent().unwrap(), &reports.join(RUN), 20);
    fs::remove_dir_all(first.parent().unwrap()).unwrap();
    workplace
}

/// The same results under another id, with so many calls a case.
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
    let mut writer = CallsWriter::new(id, File::create(to.join(LATENCIES)).unwrap()).unwrap();
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
    workplace.inferbench(&[&["store", "import"], sources].concat())
}

/// The runs that the store lists.
#[track_caller]
fn runs(workplace: &Workplace) -> Vec<Value> {
    let listed = workplace.inferbench(&["store", "runs", "--format", "json"]).finish().with_code(0);
    serde_json::from_str(&listed.stdout).unwrap()
}

#[track_caller]
fn ids(workplace: &Workplace) -> Vec<String> {
    runs(workplace).iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect()
}

/// Every file of a store by its path, but the lock.
fn content(store: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![store.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("lock") {
                found.insert(path.strip_prefix(store).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn store(workplace: &Workplace) -> PathBuf {
    workplace.path("target-reports/store")
}

/// The only file of a table.
fn file_of(workplace: &Workplace, table: &str) -> PathBuf {
    let content = content(&store(workplace));
    let mut paths = content.keys().filter(|path| path.starts_with(table));
    store(workplace).join(paths.next().unwrap())
}

fn cut(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

#[test]
fn convert_keeps_the_run_and_every_call_of_it() {
    let workplace = Workplace::new(&["digits"], &["null"], &[1, 8]);
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    workplace.inferbench(&["convert", "--store"]).finish().with_code(0).saying(&["added: 20"]);
    let listed = runs(&workplace);
    let calls: usize = workplace.records().iter().filter_map(|record| record.iterations).sum();
    assert!(calls > 0);
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0]["cases"], &listed[0]["calls"]), (&2.into(), &calls.into()));
    let before = content(&store(&workplace));
    assert_eq!(before.len(), 5, "{:?}", before.keys());
    let host = &workplace.records()[0].host_id;
    assert!(before.keys().any(|path| path.starts_with(format!("raw_benchmark_data/host={host}"))));
    workplace.inferbench(&["convert", "--store"]).finish().with_code(0).saying(&["there already: 20"]);
    assert_eq!(content(&store(&workplace)), before);
}

#[test]
fn a_second_import_changes_nothing() {
    let workplace = measured();
    add_runs(&workplace, 2..4, 10);
    import(&workplace, &[]).finish().with_code(0).saying(&["added: 20260101T000000Z (2 cases, 40 calls)"]);
    let before = content(&store(&workplace));
    import(&workplace, &[RUN, RUN, "target-reports"]).finish().with_code(0);
    assert_eq!(content(&store(&workplace)), before);
    assert_eq!(ids(&workplace), [RUN, "20260102T000000Z", "20260103T000000Z"]);
}

#[test]
fn what_is_exported_is_what_was_imported() {
    let workplace = measured();
    add_runs(&workplace, 2..4, 10);
    import(&workplace, &[]).finish().with_code(0);
    workplace.inferbench(&["store", "export", "copy"]).finish().with_code(0);
    assert_eq!(content(&workplace.path("copy")), content(&store(&workplace)));
    workplace.inferbench(&["store", "import", "copy", "--store", "again"]).finish().with_code(0);
    assert_eq!(content(&workplace.path("again")), content(&store(&workplace)));

    workplace.inferbench(&["store", "export", "all.csv", "--run", RUN]).finish().with_code(0);
    let read = |path: &str| -> Vec<Record> { read_records(File::open(workplace.path(path)).unwrap()).unwrap() };
    assert_eq!(read("all.csv"), read(&format!("target-reports/{RUN}/results.csv")));
    // By themselves: without their calls.
    workplace.inferbench(&["store", "import", "all.csv", "--store", "bare"]).finish().with_code(0);
    assert_eq!(content(&workplace.path("bare")).len(), 4);
}

#[test]
fn a_run_is_not_replaced_by_less_of_it() {
    let workplace = measured();
    import(&workplace, &[]).finish().with_code(0);
    let before = content(&store(&workplace));
    fs::remove_file(workplace.path(&format!("target-reports/{RUN}/{LATENCIES}"))).unwrap();
    import(&workplace, &[RUN]).finish().with_code(2).saying(&["40 calls, and comes with 2 and 0 now", "--replace"]);
    assert_eq!(content(&store(&workplace)), before);
    add_runs(&workplace, [2], 0);
    import(&workplace, &[])
        .finish()
        .with_code(2)
        .saying(&["not imported: run 20260101T000000Z", "added: 20260102T000000Z"]);
    import(&workplace, &[RUN, "--replace"]).finish().with_code(0).saying(&["replaced"]);
    assert_eq!(runs(&workplace)[0]["calls"], 0);
    let left = content(&store(&workplace));
    assert!(
        !left.keys().any(|path| path.starts_with("raw_benchmark_data") && path.ends_with(format!("{RUN}.parquet")))
    );
}

#[test]
fn a_killed_import_leaves_the_old_store_or_the_new_one() {
    let workplace = measured();
    import(&workplace, &[]).finish().with_code(0);
    let old = content(&store(&workplace));
    add_runs(&workplace, 2..25, 3000);
    let log = workplace.path("log");
    let (mut kept, mut taken) = (0, 0);
    for milliseconds in (0..).step_by(25) {
        let mut importing = import(&workplace, &[]).start(&log);
        thread::sleep(Duration::from_millis(milliseconds));
        importing.kill();
        let ended = importing.wait().success();
        match ids(&workplace).len() {
            1 => {
                kept += 1;
                assert!(content(&store(&workplace)) == old, "killed after {milliseconds} ms");
            }
            24 => taken += 1,
            other => panic!("{other} runs after {milliseconds} ms"),
        }
        if ended || taken > 3 {
            break;
        }
    }
    assert!(kept > 0, "the first was killed before it did anything");
    import(&workplace, &[]).finish().with_code(0);
    workplace.inferbench(&["store", "import", "--store", "whole"]).finish().with_code(0);
    assert!(content(&store(&workplace)) == content(&workplace.path("whole")));
}

#[test]
fn writers_at_once_lose_nothing() {
    let workplace = measured();
    let ids_added = add_runs(&workplace, 2..14, 500);
    let log = |index: usize| workplace.path(&format!("log-{index}"));
    let start = |(index, part): (usize, &[String])| {
        let sources: Vec<&str> = part.iter().map(String::as_str).collect();
        import(&workplace, &sources).start(&log(index))
    };
    let mut writers: Vec<_> = ids_added.chunks(3).enumerate().map(start).collect();
    for (index, writer) in writers.iter_mut().enumerate() {
        assert!(writer.wait().success(), "{}", fs::read_to_string(log(index)).unwrap());
    }
    assert_eq!(ids(&workplace), ids_added);
    import(&workplace, &[]).finish().with_code(0);
    workplace.inferbench(&["store", "import", "--store", "one-by-one"]).finish().with_code(0);
    assert!(content(&store(&workplace)) == content(&workplace.path("one-by-one")));
}

#[test]
fn a_store_of_a_newer_inferbench_is_refused_and_left_alone() {
    let workplace = measured();
    import(&workplace, &[]).finish().with_code(0);
    let path = store(&workplace).join(STORE_FILE);
    let text = fs::read_to_string(&path).unwrap();
    let schema = text.lines().find(|line| line.starts_with("schema_version")).unwrap();
    let newer = [
        (text.replace("format = 1", "format = 99"), "format 99 is newer than this inferbench"),
        (text.replace(schema, "schema_version = 99"), "schema_version 99 is newer than this inferbench"),
        (text.replace("\"case\",", "\"case\", \"mood\","), "raw_benchmark_data has a column mood, which is newer"),
        ("format = ".to_owned(), "store.toml: "),
    ];
    for (text, reason) in newer {
        fs::write(&path, text).unwrap();
        let before = content(&store(&workplace));
        for command in [vec!["runs"], vec!["import"], vec!["init"], vec!["prune", "--keep", "0"], vec!["export", "x"]] {
            let refused = workplace.inferbench(&[vec!["store"], command].concat()).finish().with_code(2);
            refused.saying(&["store.toml: ", reason]);
        }
        assert_eq!(content(&store(&workplace)), before);
    }
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
    assert_eq!(ids(&workplace), [RUN]);

    cut(&file_of(&workplace, "benchmark_runs"));
    fs::write(&latencies, whole).unwrap();
    import(&workplace, &["20260102T000000Z"]).finish().with_code(0);
    let listed = workplace.inferbench(&["store", "runs"]).finish().with_code(2);
    assert!(listed.stdout.contains("20260102T000000Z"), "{}", listed.stdout);
    listed.saying(&["unreadable: ", "20260101T000000Z.parquet: cut short", "import the run again"]);
    import(&workplace, &[RUN]).finish().with_code(0).saying(&["replaced"]);
    assert_eq!(ids(&workplace), [RUN, "20260102T000000Z"]);
}

#[test]
fn another_store_with_a_broken_file_gives_its_other_runs() {
    let workplace = measured();
    add_runs(&workplace, [2], 10);
    import(&workplace, &[]).finish().with_code(0);
    cut(&file_of(&workplace, "benchmark_results"));
    let source = store(&workplace);
    let arguments = ["store", "import", source.to_str().unwrap(), "--store", "other"];
    workplace.inferbench(&arguments).finish().with_code(2).saying(&[
        "not imported: ",
        "benchmark_results",
        "cut short",
    ]);
    let listed = workplace.inferbench(&["store", "runs", "--store", "other"]).finish().with_code(0);
    assert!(listed.stdout.contains("20260102T000000Z") && !listed.stdout.contains(RUN), "{}", listed.stdout);
}

#[test]
fn without_room_on_the_disk_the_old_store_stays() {
    let workplace = measured();
    import(&workplace, &[]).finish().with_code(0);
    let before = content(&store(&workplace));
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
    limited("store import").with_code(2).saying(&["target-reports/store/", ".parquet: File too large"]);
    assert_eq!(content(&store(&workplace)), before);
    limited("store export all.csv").with_code(0);
    import(&workplace, &[]).finish().with_code(0);
    assert_eq!(ids(&workplace).len(), 2);
}

#[test]
fn prune_removes_what_it_is_told_to() {
    let workplace = measured();
    add_runs(&workplace, 2..6, 10);
    import(&workplace, &[]).finish().with_code(0);
    let before = content(&store(&workplace));
    let prune = |arguments: &[&str], code| {
        workplace.inferbench(&[&["store", "prune"], arguments].concat()).finish().with_code(code)
    };
    prune(&[], 2);
    prune(&["--only-calls"], 2);
    prune(&["--run", "20260109T000000Z"], 2).saying(&["no run \"20260109T000000Z\"", "store runs"]);
    let dry = prune(&["--keep", "3", "--dry-run"], 0);
    assert_eq!(dry.stdout, "would remove 20260101T000000Z\nwould remove 20260102T000000Z\n");
    assert_eq!(content(&store(&workplace)), before);

    prune(&["--keep", "3", "--only-calls"], 0);
    let calls: Vec<u64> = runs(&workplace).iter().map(|run| run["calls"].as_u64().unwrap()).collect();
    assert_eq!(calls, [0, 0, 20, 20, 20]);
    prune(&["--before", "2026-01-03"], 0);
    assert_eq!(ids(&workplace), ["20260103T000000Z", "20260104T000000Z", "20260105T000000Z"]);
    prune(&["--run", "20260104T000000Z"], 0);
    prune(&["--keep", "0"], 0);
    assert!(ids(&workplace).is_empty());
    assert_eq!(content(&store(&workplace)).len(), 1, "only store.toml is left");
    assert!(prune(&["--keep", "0"], 0).stdout.is_empty());
}

#[test]
fn a_folder_of_something_else_is_no_store() {
    let workplace = measured();
    fs::create_dir_all(workplace.path("other")).unwrap();
    workplace.write("other/notes.txt", "mine");
    let into = |folder| workplace.inferbench(&["store", "import", "--store", folder]).finish();
    into("other").with_code(2).saying(&["other is not a store"]);
    assert_eq!(content(&workplace.path("other")).len(), 1);
    workplace.inferbench(&["store", "runs"]).finish().with_code(2).saying(&["no store in", "inferbench store import"]);
    import(&workplace, &["nothing"]).finish().with_code(2).saying(&["no run \"nothing\""]);
    import(&workplace, &["other"]).finish().with_code(2).saying(&["other: no results.csv"]);
    assert!(!store(&workplace).exists());
    workplace.inferbench(&["store", "init"]).finish().with_code(0);
    assert!(ids(&workplace).is_empty());
}

#[cfg(not(feature = "duckdb"))]
#[test]
fn without_duckdb_a_query_says_how_to_get_it() {
    let workplace = measured();
    import(&workplace, &[]).finish().with_code(0);
    for arguments in [["store", "query", "FROM benchmark_runs"], ["store", "export", "x.duckdb"]] {
        let refused = workplace.inferbench(&arguments).finish().with_code(2);
        refused.saying(&["scripts/setup duckdb", "--features duckdb"]);
    }
}

#[cfg(feature = "duckdb")]
mod with_duckdb {
    use super::*;

    #[track_caller]
    fn query(workplace: &Workplace, arguments: &[&str]) -> String {
        workplace.inferbench(&[&["store", "query"], arguments].concat()).finish().with_code(0).stdout
    }

    #[test]
    fn the_four_tables_are_there_as_views_and_as_a_database() {
        let workplace = measured();
        add_runs(&workplace, [2], 10);
        import(&workplace, &[]).finish().with_code(0);
        workplace.inferbench(&["store", "export", "history.duckdb"]).finish().with_code(0);
        let tables =
            [("benchmark_runs", 2), ("benchmark_results", 4), ("hardware_info", 2), ("raw_benchmark_data", 60)];
        for (table, rows) in tables {
            let count = format!("SELECT count(*) AS rows FROM {table}");
            let types = format!("SELECT column_name, column_type FROM (DESCRIBE {table})");
            for options in [vec![], vec!["--database", "history.duckdb"]] {
                let csv = |sql: &str| query(&workplace, &[&[sql, "--format", "csv"], options.as_slice()].concat());
                assert_eq!(csv(&count), format!("rows\n{rows}\n"), "{table} {options:?}");
                assert_eq!(csv(&types), query(&workplace, &[&types, "--format", "csv"]));
            }
        }
        let types = query(&workplace, &["DESCRIBE benchmark_results", "--format", "tsv"]);
        for column in
            ["timestamp\tTIMESTAMP\t", "iterations\tBIGINT\t", "latency_p50_ms\tDOUBLE\t", "git_dirty\tBOOLEAN\t"]
        {
            assert!(types.contains(column), "no {column} in {types}");
        }
    }

    #[test]
    fn answers_come_in_four_forms_and_errors_in_one() {
        let workplace = measured();
        import(&workplace, &[]).finish().with_code(0);
        let sql = "SELECT run_id, cases, NULL AS nothing FROM benchmark_runs";
        let json: Value = serde_json::from_str(&query(&workplace, &[sql, "--format", "json"])).unwrap();
        assert_eq!(json, serde_json::json!([{"run_id": RUN, "cases": 2, "nothing": null}]));
        assert_eq!(query(&workplace, &[sql, "--format", "tsv"]), format!("run_id\tcases\tnothing\n{RUN}\t2\t\n"));
        assert!(query(&workplace, &[sql]).contains(&format!("{RUN}   ")));
        let failing = |sql: &str| workplace.inferbench(&["store", "query", sql]).finish().with_code(2);
        failing("SELECT nothing FROM benchmark_runs").saying(&["nothing"]);
        cut(&file_of(&workplace, "raw_benchmark_data"));
        failing("FROM benchmark_runs").saying(&["raw_benchmark_data", "cut short", "import its run again"]);
        workplace.write("broken.duckdb", "no database");
        let broken = workplace.inferbench(&["store", "query", "SELECT 1", "--database", "broken.duckdb"]);
        { broken }.finish().with_code(2).saying(&["broken.duckdb: "]);
    }

    #[test]
    fn percentiles_of_the_calls_are_those_of_the_results() {
        let workplace = Workplace::new(&["digits"], &["null"], &[1, 8]);
        workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
        workplace.inferbench(&["convert", "--store"]).finish().with_code(0);
        let sql = "SELECT \"case\", quantile_disc(nanoseconds, 0.5) / 1e6 AS p50, quantile_disc(nanoseconds, 0.99) / 1e6 AS p99 \
            FROM raw_benchmark_data GROUP BY ALL ORDER BY ALL";
        let answer: Value = serde_json::from_str(&query(&workplace, &[sql, "--format", "json"])).unwrap();
        assert_eq!(answer.as_array().unwrap().len(), 2);
        for row in answer.as_array().unwrap() {
            let record = workplace.record(row["case"].as_str().unwrap());
            assert_eq!((row["p50"].as_f64(), row["p99"].as_f64()), (record.latency_p50_ms, record.latency_p99_ms));
        }
    }

    #[test]
    fn the_documented_sql_runs_as_it_is_there() {
        let workplace = measured();
        import(&workplace, &[]).finish().with_code(0);
        let pages = ["README.md", "src/guide/history.md"]
            .map(|page| fs::read_to_string(checkout().join(page)).unwrap())
            .concat();
        let examples: Vec<&str> =
            pages.split("store query '").skip(1).filter_map(|rest| rest.split('\'').next()).collect();
        assert!(examples.len() >= 3, "{examples:?}");
        for sql in examples {
            let answer = query(&workplace, &[sql, "--format", "csv"]);
            assert!(answer.lines().count() > 1, "{sql} gives {answer}");
        }
    }
}

/// The block of the guide that begins with `import pandas`.
fn pandas_example() -> String {
    let blocks = blocks(&checkout().join("src/guide/history.md"), "python");
    blocks.into_iter().find(|block| block.starts_with("import pandas")).unwrap()
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
        eprintln!("left out: {} has no pandas with pyarrow", python.display());
        return;
    }
    let workplace = measured();
    add_runs(&workplace, [2], 10);
    import(&workplace, &[]).finish().with_code(0);
    let mut command = Command::new(&python);
    let shown = command.args(["-c", &example]).current_dir(workplace.path("")).finish().with_code(0);
    assert!(shown.stdout.contains("digits") && shown.stdout.contains("null"), "{}", shown.stdout);
}
