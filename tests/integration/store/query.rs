//! Questions to the history: by flags in every build, and in SQL with DuckDB.

use super::*;

#[cfg(not(feature = "duckdb"))]
#[test]
fn without_duckdb_a_query_says_how_to_get_it() {
    let workplace = measured();
    for arguments in [["store", "query", "FROM benchmark_runs"], ["store", "export", "x.duckdb"]] {
        let refused = workplace.inferbench(&arguments).finish().with_code(2);
        refused.saying(&["scripts/setup duckdb", "--features duckdb"]);
    }
}

#[test]
fn flags_find_and_group_records_in_every_build() {
    let workplace = measured();
    add_runs(&workplace, [2], 10);
    let query = |arguments: &[&str]| {
        let arguments = [&["store", "query", "--format", "tsv"], arguments].concat();
        workplace.inferbench(&arguments).finish().with_code(0)
    };
    let medians = query(&["--where", "model=digits", "--by", "backend,batch", "--show", "batch"]);
    assert_eq!(medians.stdout, "backend\tbatch_size\trows\tmedian_batch_size\nnull\t1\t2\t1\nnull\t8\t2\t8\n");
    let rows = query(&["--show", "run_id,batch", "--sort", "batch", "--descending", "--limit", "2"]);
    assert_eq!(rows.stdout, format!("run_id\tbatch_size\n{RUN}\t8\n20260102T000000Z\t8\n"));
    let mixed = query(&["--by", "model", "--since", "2026-01-02"]);
    assert!(mixed.stdout.contains("digits\t2\t") && mixed.stderr.contains("differ in batch_size"), "{}", mixed.stderr);
    let table =
        workplace.inferbench(&["store", "query", "--since", "2026-01-02", "--history", "target-reports"]).finish();
    assert!(table.stdout.contains("digits/null-cpu-f32/8"), "{}", table.stdout);
    let old = query(&["--since", "1d", "--show", "model"]);
    assert_eq!(old.stdout, "model\n");
    let refused =
        |arguments: &[&str]| workplace.inferbench(&[&["store", "query"], arguments].concat()).finish().with_code(2);
    refused(&["--where", "modle=digits"]).saying(&["no column", "did you mean model"]);
    refused(&["--by", "model", "FROM benchmark_runs"]).saying(&["cannot be used with"]);
    refused(&[]).saying(&["SQL", "--where <CONDITION>", "--show <COLUMNS>"]);
    cut(&workplace.path(&format!("target-reports/{RUN}/results.csv")));
    refused(&["--by", "model"]).saying(&["results.csv: cut short", "convert or import the run again"]);
}

#[cfg(feature = "duckdb")]
mod with_duckdb {
    use super::*;
    use crate::support::synthetic::{Shape, write_runs};

    #[track_caller]
    fn query(workplace: &Workplace, arguments: &[&str]) -> String {
        workplace.inferbench(&[&["store", "query"], arguments].concat()).finish().with_code(0).stdout
    }

    #[test]
    fn a_large_run_is_read_from_its_parquet_file_with_the_same_rows() {
        let workplace = measured();
        write_runs(&workplace.path("made"), Shape { runs: 1, cases: 300, host: ("aaaa1111", 1.0) });
        workplace.inferbench(&["store", "import", "made"]).finish().with_code(0);
        let questions = [
            "SELECT model, count(*) AS rows, median(latency_p50_ms), max(timestamp) FROM benchmark_results GROUP BY ALL ORDER BY ALL",
            "SELECT column_name, column_type FROM (DESCRIBE benchmark_results)",
        ];
        let answers = || questions.map(|sql| query(&workplace, &[sql, "--format", "csv"]));
        let plan = || query(&workplace, &["EXPLAIN SELECT count(model) FROM benchmark_results", "--format", "csv"]);
        let fast = answers();
        assert!(plan().contains("READ_PARQUET") && plan().contains("READ_CSV"), "{}", plan());
        for run in fs::read_dir(workplace.path("target-reports")).unwrap() {
            let _ = fs::remove_file(run.unwrap().path().join("results.parquet"));
        }
        assert!(!plan().contains("READ_PARQUET"), "{}", plan());
        assert_eq!(answers(), fast);
    }

    #[test]
    fn the_four_tables_are_there_as_views_and_as_a_database() {
        let workplace = measured();
        add_runs(&workplace, [2], 10);
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
        // An export is a history: it can be reported, and imported again.
        let history = History::open(&[workplace.path("history.duckdb")]).unwrap();
        assert_eq!(history.runs().iter().map(|run| run.name()).collect::<Vec<_>>(), ["20260102T000000Z", RUN]);
        let own = History::open(&[workplace.path("target-reports")]).unwrap();
        for run in history.runs() {
            let original = own.get(run.name()).unwrap();
            assert_eq!(run.records().unwrap(), original.records().unwrap());
            assert_eq!(run.facts().unwrap(), original.facts().unwrap());
            assert_eq!(kept_calls(run.folder()), kept_calls(original.folder()));
            assert_eq!(run.machine().unwrap(), original.machine().unwrap());
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
        let sql = "SELECT run_id, cases, NULL AS nothing FROM benchmark_runs";
        let json: Value = serde_json::from_str(&query(&workplace, &[sql, "--format", "json"])).unwrap();
        assert_eq!(json, serde_json::json!([{"run_id": RUN, "cases": 2, "nothing": null}]));
        assert_eq!(query(&workplace, &[sql, "--format", "tsv"]), format!("run_id\tcases\tnothing\n{RUN}\t2\t\n"));
        assert!(query(&workplace, &[sql]).contains(&format!("{RUN}   ")));
        let failing = |sql: &str| workplace.inferbench(&["store", "query", sql]).finish().with_code(2);
        failing("SELECT nothing FROM benchmark_runs").saying(&["nothing"]);
        cut(&workplace.path(&format!("target-reports/{RUN}/latencies.parquet")));
        failing("FROM raw_benchmark_data").saying(&["latencies.parquet: cut short", "convert or import the run again"]);
        cut(&workplace.path(&format!("target-reports/{RUN}/results.csv")));
        failing("FROM benchmark_results").saying(&["results.csv: cut short", "convert or import the run again"]);
        workplace.write("broken.duckdb", "no database");
        let broken = workplace.inferbench(&["store", "query", "SELECT 1", "--database", "broken.duckdb"]);
        { broken }.finish().with_code(2).saying(&["broken.duckdb: "]);
    }

    #[test]
    fn percentiles_of_the_calls_are_those_of_the_results() {
        let workplace = Workplace::new(&["digits"], &["null"], &[1, 8]);
        workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
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
