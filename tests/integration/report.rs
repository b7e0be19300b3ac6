//! Reports through the command: one HTML file that asks nobody for anything, charts as files, JSON by its schema, the index.

use std::fs::{self, File};
use std::path::Path;

use inferbench::definition::{Case, Phase};
use inferbench::history::{read_records, write_records};
use inferbench::machine::Machine;
use inferbench::report::drawing::{Chart, Drawing};
use inferbench::run_data::Record;
use resvg::usvg::roxmltree::Document;
use serde_json::Value;

use crate::support::synthetic::{Shape, give_machine, write_runs};
use crate::support::{Run, Workplace, chromium};

const HERE: (&str, f64) = ("aaaa1111", 1.0);
const FASTER: (&str, f64) = ("bbbb2222", 6.0);

/// A place with made-up runs.
fn with_runs(runs: usize, cases: usize) -> Workplace {
    let workplace = Workplace::new(&[], &[], &[1]);
    write_runs(&workplace.path("target-reports"), Shape { runs, cases, host: HERE });
    workplace
}

/// The page that a command of these arguments writes.
fn page(workplace: &Workplace, arguments: &[&str]) -> String {
    let mut all = vec!["report", "--format", "html", "--output", "page.html"];
    all.extend(arguments);
    workplace.inferbench(&all).finish().with_code(0);
    fs::read_to_string(workplace.path("page.html")).unwrap()
}

fn payload(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"payload\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// A chart as the page's program makes it.
fn chart(payload: &Value, id: &str) -> Chart {
    let charts = Drawing::new(payload).unwrap().charts().unwrap();
    charts.into_iter().find(|chart| chart.id == id).unwrap()
}

/// Changes the records of a run.
fn rewrite(results: &Path, change: impl Fn(&mut Vec<Record>)) {
    let mut records = read_records(File::open(results).unwrap()).unwrap();
    change(&mut records);
    write_records(&records, File::create(results).unwrap()).unwrap();
}

/// The columns of the widest line that could be broken: a long path stays whole.
fn width(text: &str) -> usize {
    let lines = text.lines().filter(|line| line.trim().contains(' ') || line.contains('─'));
    lines.map(|line| line.trim_end().chars().count()).max().unwrap_or(0)
}

#[test]
fn tables_fit_into_the_terminal_and_say_what_they_leave_out() {
    let workplace = with_runs(2, 8);
    let commands: [&[&str]; 6] = [
        &["report"],
        &["report", "--machines"],
        &["recommend", "resnet50"],
        &["recommend", "--per", "model"],
        &["store", "runs"],
        &["devices"],
    ];
    for arguments in commands {
        let printed = |columns: Option<&str>, more: &[&str]| {
            let mut command = workplace.inferbench(arguments);
            match columns {
                Some(columns) => command.env("COLUMNS", columns),
                None => command.env_remove("COLUMNS"),
            };
            command.args(more).finish().with_code(0)
        };
        let whole = printed(None, &["--wide"]);
        for (columns, limit) in [(Some("80"), 80), (None, 100), (Some("160"), 160)] {
            let fitted = printed(columns, &[]);
            assert!(width(&fitted.stdout) <= limit, "{arguments:?}: {limit}: {}", fitted.stdout);
            let is_left_out = fitted.stderr.contains("left out for lack of width: ");
            assert!(is_left_out || width(&whole.stdout) > limit || fitted.stdout == whole.stdout, "{arguments:?}");
        }
        assert!(!whole.stderr.contains("left out for lack of width"), "{arguments:?}: {}", whole.stderr);
    }
    // What the rows are ordered by is shown at any width.
    let by_rate = ["recommend", "--per", "model", "--goal", "throughput"];
    let left_out = workplace.inferbench(&by_rate).env("COLUMNS", "50").finish().with_code(0).stderr;
    assert!(left_out.contains("left out for lack of width") && !left_out.contains("samples/s"), "{left_out}");
    let asked = ["report", "--columns", "backend,p50,p90,p99,mean,samples,memory,size,level"];
    let narrow = workplace.inferbench(&asked).env("COLUMNS", "80").finish().with_code(0);
    let is_header = |line: &&str| line.contains("backend") && line.contains("model size") && line.contains("level");
    assert!(narrow.stdout.lines().any(|line| is_header(&line)), "{}", narrow.stdout);
}

#[test]
fn the_page_is_one_file_that_requests_nothing() {
    let workplace = with_runs(1, 40);
    let page = page(&workplace, &[]);
    for request in [" src=", "<link", "@import", "url(http", "href=\"http", "fetch(\"http", "XMLHttpRequest(\"http"] {
        assert!(!page.contains(request), "{request}");
    }
    assert!(page.contains("default-src 'none'"));
    assert!(page.len() < 1_500_000, "{} bytes", page.len());
    assert!(page.contains("Copyright 2010-2026 Mike Bostock") && page.contains("Observable, Inc."));
}

#[test]
fn html_goes_beside_the_results_and_its_path_is_printed() {
    let workplace = with_runs(2, 8);
    let printed = |arguments: &[&str]| workplace.inferbench(arguments).finish().with_code(0).stdout;
    let one = printed(&["report", "--format", "html"]);
    assert!(one.trim_end().ends_with("20260101T010000Z-aaaa1111/report.html"), "{one}");
    let several = printed(&["report", "--format", "html", "--all"]);
    assert!(several.trim_end().ends_with("target-reports/report.html"), "{several}");
    assert!(Path::new(several.trim_end()).is_file());
    assert!(printed(&["report", "--format", "html", "--output", "-"]).starts_with("<!DOCTYPE html>"));
}

#[test]
fn a_folder_of_reports_is_read_and_written() {
    let workplace = with_runs(1, 8);
    write_runs(&workplace.path("other"), Shape { runs: 2, cases: 8, host: HERE });
    let html = |arguments: &[&str]| {
        let arguments = [&["report", "--format", "html", "--output-dir", "other"], arguments].concat();
        workplace.inferbench(&arguments).finish().with_code(0).stdout.trim_end().to_owned()
    };
    assert!(html(&[]).ends_with("other/20260101T010000Z-aaaa1111/report.html"), "{}", html(&[]));
    assert_eq!(html(&["--all"]), "other/report.html");
    // Runs of another history: what is written about them goes into the folder too.
    assert_eq!(html(&["--history", "target-reports"]), "other/report.html");
    assert!(
        fs::read_to_string(workplace.path("other/index.html"))
            .unwrap()
            .contains("20260101T010000Z-aaaa1111/report.html")
    );
    assert!(!workplace.path("target-reports/index.html").exists());
    let table = workplace.inferbench(&["report", "--output-dir", "other", "--all"]).finish().with_code(0).stdout;
    assert_eq!(table.matches("run 2026").count(), 2, "{table}");
}

#[test]
fn names_that_look_like_markup_are_only_names() {
    let workplace = with_runs(1, 8);
    let results = workplace.path("target-reports/20260101T000000Z-aaaa1111/results.csv");
    let hostile = "</script><script>document.title='got you'</script>\"'`<img src=x onerror=alert(1)>";
    rewrite(&results, |records| {
        for record in records {
            record.model = hostile.into();
            record.suite = hostile.into();
            record.message = Some(hostile.into());
            record.backend = format!("b{hostile}");
        }
    });
    let page = page(&workplace, &[]);
    assert!(!page.contains("<script>document.title") && !page.contains("<img"));
    assert_eq!(payload(&page)["cases"][0]["model"], hostile);
    workplace.inferbench(&["report", "--charts", "figures"]).finish().with_code(0);
    let svg = fs::read_to_string(workplace.path("figures/latency.svg")).unwrap();
    assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;"), "{svg}");
    let index = inferbench::report::index::render(&workplace.path("target-reports"), &workplace.criterion()).unwrap();
    assert!(!index.contains("<script") && index.contains("&lt;script&gt;"), "{index}");
}

#[test]
fn json_is_what_its_schema_says() {
    let workplace = with_runs(2, 60);
    let printed = |arguments: &[&str]| -> Value {
        serde_json::from_str(&workplace.inferbench(arguments).finish().with_code(0).stdout).unwrap()
    };
    let schema = printed(&["report", "--format", "json-schema"]);
    let mut records = printed(&["report", "--format", "json", "--all"]);
    assert_eq!(records.as_array().unwrap().len(), 120);

    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler.add_resource("report.json", schema.clone()).unwrap();
    let compiled = compiler.compile("report.json", &mut schemas).unwrap();
    schemas.validate(&records, compiled).unwrap();

    // It says something: each of these is no report.
    records[0]["batch_size"] = "one".into();
    assert!(schemas.validate(&records, compiled).is_err());
    records[0]["batch_size"] = 1.into();
    records[0]["status"] = "splendid".into();
    assert!(schemas.validate(&records, compiled).is_err());
    records[0].as_object_mut().unwrap().remove("status");
    assert!(schemas.validate(&records, compiled).is_err());

    let described = &schema["$defs"]["ReportedRecord"]["properties"];
    let columns = records[1].as_object().unwrap().keys().filter(|column| described.get(column.as_str()).is_none());
    assert_eq!(columns.collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn cases_are_tests_annotations_and_a_comment_for_continuous_integration() {
    let workplace = with_runs(2, 160);
    let printed = |arguments: &[&str]| workplace.inferbench(arguments).finish().with_code(0).stdout;
    let runs = ["20260101T000000Z-aaaa1111", "20260101T010000Z-aaaa1111"];
    let all = printed(&["report", "--all", "--format", "junit"]);
    let document = Document::parse(&all).unwrap();
    let named = |tag: &str| document.descendants().filter(|node| node.has_tag_name(tag)).collect::<Vec<_>>();
    let suites: Vec<&str> = named("testsuite").iter().filter_map(|node| node.attribute("name")).collect();
    assert_eq!(suites, runs.map(|run| format!("run {run}")));
    // One case in fifty is unsupported, failed or wrong, in turn.
    assert_eq!([named("testcase").len(), named("failure").len(), named("skipped").len()], [320, 4, 2]);
    let github = printed(&["report", "--format", "github"]);
    assert_eq!(github.lines().filter(|line| line.starts_with("::error title=inferbench%3A ")).count(), 2, "{github}");
    let comment = printed(&["report", "--format", "markdown-comment", "--output", "comment.md"]);
    let file = fs::read_to_string(workplace.path("comment.md")).unwrap();
    assert!(comment.is_empty() && file.starts_with("### inferbench: 2 failed, 157 passed, 1 skipped\n"), "{file}");
    workplace.inferbench(&["report", "--machines", "--format", "junit"]).finish().with_code(2);

    let compare = ["compare", runs[0], runs[1], "--format", "junit", "--output", "compare.xml"];
    workplace.inferbench(&compare).finish();
    let compared = fs::read_to_string(workplace.path("compare.xml")).unwrap();
    let document = Document::parse(&compared).unwrap();
    assert_eq!(document.descendants().filter(|node| node.has_tag_name("testcase")).count(), 160);
}

#[test]
fn the_trend_marks_the_change_that_was_made_and_no_other() {
    let workplace = with_runs(10, 20);
    let payload = payload(&page(&workplace, &["--last", "10"]));
    assert_eq!(payload["runs"].as_array().unwrap().len(), 10);
    let trend = chart(&payload, "trend");
    let changed: Vec<&Value> = trend.points.iter().filter(|point| !point["change"].is_null()).collect();
    let ort = payload["cases"].as_array().unwrap().iter().filter(|case| case["backend"] == "ort").count();
    assert_eq!(changed.len(), ort);
    for point in changed {
        assert_eq!((&point["run"], &point["change"]["verdict"]), (&6.into(), &"slower".into()));
        assert_eq!(payload["cases"][point["case"].as_u64().unwrap() as usize]["backend"], "ort");
    }
    // Of one run, the trend looks back by itself.
    let of_latest = self::payload(&page(&workplace, &[]));
    assert_eq!(of_latest["runs"].as_array().unwrap().len(), 10);
    assert_eq!(chart(&of_latest, "trend").points.len(), trend.points.len());
}

#[test]
fn forms_that_a_runtime_computes_in_f32_are_laid_side_by_side() {
    let workplace = with_runs(1, 8);
    let run = workplace.path("target-reports/20260101T000000Z-aaaa1111");
    let forms = |payload: &Value| {
        let charts = Drawing::new(payload).unwrap().charts().unwrap();
        charts.into_iter().find(|chart| chart.id == "forms")
    };
    let show = |variants: &[&str]| {
        let form = |record: &Record, variant: &&str, number: usize| {
            let case = Case { variant: (*variant).into(), phase: Phase::Decode, ..Case::new("net", "openvino", 1) };
            Record {
                tokens_per_second: Some(10.0 * (number + 1) as f64),
                model_size_mb: Some(8.0 / (number + 1) as f64),
                ..record.clone().about(&case)
            }
        };
        rewrite(&run.join("results.csv"), |records| {
            let first = records[0].clone();
            *records = variants.iter().enumerate().map(|(number, variant)| form(&first, variant, number)).collect();
        });
        payload(&page(&workplace, &[]))
    };
    let shown = show(&["original", "int4"]);
    assert_eq!(forms(&shown).unwrap().points.len(), 2);
    let drawn = Drawing::new(&shown).unwrap().svg("forms").unwrap();
    assert!(drawn.contains(">int4<") && drawn.contains("openvino"), "{drawn}");
    assert!(forms(&show(&["original"])).is_none());
}

#[test]
fn two_machines_are_set_side_by_side() {
    let workplace = with_runs(1, 20);
    let reports = workplace.path("target-reports");
    let other = write_runs(&reports, Shape { runs: 1, cases: 20, host: FASTER }).remove(0);
    let alone = payload(&page(&workplace, &[&other]));
    assert!(chart(&alone, "hardware").absent.unwrap().contains("report RUN1 RUN2"));
    let both = payload(&page(&workplace, &["20260101T000000Z-aaaa1111", &other]));
    let hardware = chart(&both, "hardware");
    assert!(hardware.absent.is_none());
    assert_eq!(hardware.points.len(), 40);
    assert_eq!(both["machines"].as_array().unwrap().len(), 2);
}

#[test]
fn equal_machines_of_a_merged_run_are_one_group_on_the_page() {
    let workplace = Workplace::new(&[], &[], &[1]);
    let run = write_runs(&workplace.path("target-reports"), Shape { runs: 1, cases: 8, host: HERE }).remove(0);
    let results = workplace.path(&format!("target-reports/{run}/results.csv"));
    rewrite(&results, |records| {
        records.iter_mut().filter(|record| record.backend == "ort").for_each(|record| record.host_id = FASTER.0.into());
    });
    let reports = workplace.path("target-reports");
    let best = || {
        let payload = payload(&page(&workplace, &[]));
        let cases = payload["cases"].as_array().unwrap();
        let best = cases.iter().filter(|case| case["ratio_to_best"] == 1.0).count();
        (best, payload["fleet"]["lines"].to_string().contains("are ranked together"))
    };
    let machine = Machine { host_id: HERE.0.into(), ..Machine::default() };
    give_machine(&reports, &run, &machine, [(1.0, 1.0); 2]);
    // Of each of two batch sizes, the fastest on each machine.
    assert_eq!(best(), (4, false));
    let manifest = reports.join(&run).join("manifest.json");
    let mut known: Value = serde_json::from_str(&fs::read_to_string(&manifest).unwrap()).unwrap();
    known["equal_machines"] = 1.02.into();
    fs::write(&manifest, known.to_string()).unwrap();
    assert_eq!(best(), (2, true));
}

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn every_chart_is_a_file_or_has_a_reason() {
    let workplace = with_runs(3, 240);
    let done = workplace.inferbench(&["report", "--charts", "figures", "--model", "resnet50,mobilenet"]).finish();
    let done = done.with_code(0).saying(&["no hardware: No case was measured in two places"]);
    let charts = [
        "latency",
        "throughput",
        "memory",
        "distribution",
        "architectures",
        "size",
        "accuracy",
        "trend",
        "compatibility",
    ];
    assert_eq!(done.stdout.lines().count(), 2 * charts.len());
    for chart in charts {
        let svg = fs::read_to_string(workplace.path(&format!("figures/{chart}.svg"))).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("resnet") && !svg.contains("NaN"), "{chart}");
        let png = fs::read(workplace.path(&format!("figures/{chart}.png"))).unwrap();
        assert!(png.starts_with(b"\x89PNG") && png.len() > 5_000, "{chart}: {} bytes", png.len());
    }
}

#[test]
fn filters_that_leave_nothing_say_so() {
    let workplace = with_runs(1, 8);
    let nothing = workplace.inferbench(&["report", "--model", "nosuch"]).finish().with_code(2);
    nothing.saying(&["`--model nosuch`: no measured case has this name"]);
    let nothing = workplace.inferbench(&["report", "--backend", "nosuch"]).finish().with_code(2);
    nothing.saying(&["`--backend nosuch`: no measured case has this name"]);
    let none = workplace.inferbench(&["report", "--device", "cuda:7"]).finish().with_code(2);
    none.saying(&["no case passes the filters"]);
    let table = workplace.inferbench(&["report", "--backend", "tch"]).finish().with_code(0).stdout;
    assert!(table.contains("tch") && !table.contains(" ort "), "{table}");
}

#[test]
fn a_run_without_a_case_that_passes_the_filters_is_left_out() {
    let workplace = with_runs(2, 8);
    let first = workplace.path(&format!("target-reports/20260101T000000Z-{}/results.csv", HERE.0));
    rewrite(&first, |records| records.retain(|record| record.backend != "tch"));
    let of = |format: &str| {
        workplace.inferbench(&["report", "--all", "--backend", "tch", "--format", format]).finish().with_code(0).stdout
    };
    let (markdown, junit) = (of("markdown"), of("junit"));
    assert!(markdown.contains("tch") && !markdown.contains("## Run \n"), "{markdown}");
    assert_eq!(junit.matches("<testsuite name=\"run 20260101T010000Z").count(), 1, "{junit}");
    assert_eq!(junit.matches("<testsuite name=").count(), 1, "{junit}");
}

#[test]
fn tests_of_llama_bench_are_no_form_of_variants_or_machines() {
    let workplace = with_runs(1, 8);
    for asked in [&["--variants", "resnet50"] as &[&str], &["--machines"]] {
        let arguments = [&["report", "--format", "llama-bench"], asked].concat();
        workplace.inferbench(&arguments).finish().with_code(2).saying(&["not --variants or --machines"]);
    }
}

#[test]
fn the_index_has_all_runs_the_newest_first() {
    let workplace = with_runs(3, 8);
    fs::create_dir_all(workplace.path("target-reports/20250101T000000Z")).unwrap();
    workplace.write("target-reports/20250101T000000Z/results.csv", "no records");
    workplace.inferbench(&["report", "--format", "html"]).finish().with_code(0);
    let html = inferbench::report::index::render(&workplace.path("target-reports"), &workplace.criterion()).unwrap();
    let order: Vec<usize> = ["20260101T020000Z", "20260101T010000Z", "20260101T000000Z", "20250101T000000Z"]
        .iter()
        .map(|run| html.find(run).unwrap())
        .collect();
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(html.matches("/report.html\"").count(), 1, "only the last run has a page");
    assert!(html.contains("it has no column schema_version"), "the run that cannot be read says why");
    fs::create_dir_all(workplace.criterion().join("report")).unwrap();
    workplace.write("target/criterion/report/index.html", "");
    let html = inferbench::report::index::render(&workplace.path("target-reports"), &workplace.criterion()).unwrap();
    assert!(html.contains("/target/criterion/report/index.html\">"), "{html}");
    let reports = workplace.path("target-reports");
    fs::rename(reports.join(format!("20260101T020000Z-{}", HERE.0)), reports.join("last run #3")).unwrap();
    let html = inferbench::report::index::render(&reports, &workplace.criterion()).unwrap();
    assert!(html.contains("href=\"last%20run%20%233/report.html\""), "{html}");
}

#[test]
fn a_case_with_a_profile_has_a_link_to_it() {
    let workplace = with_runs(1, 8);
    let case_id = "resnet50/tch-cpu-f32/1";
    let folder = workplace.path("target-reports/profiles/20260102T000000Z-aaaa1111");
    fs::create_dir_all(&folder).unwrap();
    let profile =
        |host_id: &str| serde_json::json!({ "host_id": host_id, "cases": [{ "case_id": case_id }] }).to_string();
    fs::write(folder.join("profile.json"), profile(HERE.0)).unwrap();
    fs::write(folder.join("profile.html"), "").unwrap();
    // That of another machine is none of this case.
    let of_other = workplace.path("target-reports/profiles/20260103T000000Z-bbbb2222");
    fs::create_dir_all(&of_other).unwrap();
    fs::write(of_other.join("profile.json"), profile(FASTER.0)).unwrap();
    fs::write(of_other.join("profile.html"), "").unwrap();
    let report = workplace.inferbench(&["report", "--format", "html"]).finish().with_code(0).stdout;
    let page = fs::read_to_string(report.trim_end()).unwrap();
    let payload = payload(&page);
    let cases = payload["cases"].as_array().unwrap();
    let linked: Vec<&Value> = cases.iter().filter(|case| !case["profile"].is_null()).collect();
    assert_eq!((linked.len(), &linked[0]["id"]), (1, &case_id.into()));
    let link = linked[0]["profile"].as_str().unwrap();
    let file = Path::new(report.trim_end()).parent().unwrap().join(link.split('#').next().unwrap());
    assert!(file.is_file() && link.ends_with("#resnet50%2Ftch-cpu-f32%2F1"), "{link}");
    let index = fs::read_to_string(workplace.path("target-reports/index.html")).unwrap();
    assert!(index.contains("href=\"profiles/20260102T000000Z-aaaa1111/profile.html\""), "{index}");
    assert!(index.contains("1 run, the newest first") && index.contains(case_id), "{index}");
    let elsewhere = self::payload(&self::page(&workplace, &[]));
    let written = elsewhere["cases"].as_array().unwrap().iter().find_map(|case| case["profile"].as_str()).unwrap();
    assert!(Path::new(written.split('#').next().unwrap()).is_absolute(), "{written}");
}

#[test]
fn measuring_writes_the_page_the_distributions_and_the_index() {
    let workplace = Workplace::new(&["digits"], &["null"], &[1, 8]);
    let ran = workplace.inferbench(&["run", "--benchmark-only", "--noplot", "--model", "digits"]).finish().with_code(0);
    let run_id = workplace.latest_run().read_manifest().unwrap().run_id;
    let report = workplace.path("target-reports").join(&run_id).join("report.html");
    let index = workplace.path("target-reports/index.html");
    for path in [&report, &index] {
        assert!(ran.stdout.contains(&path.display().to_string()), "{}", ran.stdout);
    }
    assert!(fs::read_to_string(&index).unwrap().contains(&format!("href=\"{run_id}/report.html\"")));
    // What converts a run again writes both again.
    fs::remove_file(&index).unwrap();
    fs::remove_file(&report).unwrap();
    workplace.inferbench(&["convert"]).finish().with_code(0);
    assert!(index.is_file());
    let payload = payload(&fs::read_to_string(&report).unwrap());
    let facts = payload["machines"][0]["facts"].as_array().unwrap();
    assert!(facts.iter().any(|fact| fact["name"] == "logical processors"), "{facts:?}");
    assert!(payload["machines"][0]["resolution"].as_str().unwrap().starts_with("smallest detectable change"));
    let curves = chart(&payload, "distribution").points;
    // Twenty calls tell of quantiles up to 95 %; the record alone has four.
    assert_eq!(curves.len(), 2);
    assert!(curves.iter().all(|curve| curve["quantiles"].as_array().unwrap().len() > 15), "{curves:?}");
}

/// Says how far the table of what to deploy goes beyond its section in a frame of 1100 pixels.
const MEASURE: &str = "addEventListener('load', () => { const inner = document.querySelector('iframe').contentDocument; \
    const table = inner.querySelector('#deploy .scroll'); \
    const seen = { beyond: table.scrollWidth - table.clientWidth, last: table.querySelector('th:last-child').textContent }; \
    const pre = document.createElement('pre'); pre.id = 'seen'; pre.textContent = JSON.stringify(seen); document.body.replaceChildren(pre); });";

#[test]
fn no_column_of_what_to_deploy_is_cut_off_in_a_window_of_1100_pixels() {
    let workplace = with_runs(3, 40);
    let page = page(&workplace, &[]).replace('&', "&amp;").replace('"', "&quot;");
    let frame = format!(
        "<html><head></head><body><iframe style=\"width: 1100px; height: 800px; border: 0\" srcdoc=\"{page}\"></iframe></body></html>"
    );
    let Some(seen) = chromium::read(&frame, MEASURE, &workplace.path(""), "") else { return };
    assert_eq!(seen, serde_json::json!({ "beyond": 0, "last": "confidence" }));
}

/// What is put into a copy of the page: it filters and sorts as a reader would, and writes down what it saw.
const READER: &str = include_str!("../data/report_reader.js");

#[test]
fn a_browser_opens_filters_and_sorts_a_thousand_cases() {
    let workplace = with_runs(10, 1000);
    let page = page(&workplace, &["--all"]);
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    let Some(seen) = chromium::read(&page, READER, &workplace.path(""), "#dtype=f32") else { return };
    eprintln!(
        "1,000 cases of ten runs, {} kB: a change of the filter takes {} ms",
        page.len() / 1000,
        seen["milliseconds"]
    );
    assert_eq!(seen["errors"], serde_json::json!([]), "{seen}");
    assert_eq!(seen["empty"], serde_json::json!([]), "{seen}");
    assert_eq!(seen["onPaper"], serde_json::json!([true, false]), "{seen}");
    assert_eq!(seen["chosen"], serde_json::json!([false, true]), "{seen}");
    // The link chose f32; then the first backend was switched off.
    assert_eq!(seen["atFirst"], "500 of 1000 cases", "{seen}");
    assert_eq!(seen["filtered"], "375 of 1000 cases", "{seen}");
    assert_eq!(seen["hash"], "#dtype=f32&backend=tch,candle,tract", "{seen}");
    assert_eq!(seen["backends"], serde_json::json!(["tch", "candle", "tract"]), "{seen}");
    assert!(
        seen["csv"][0].as_str().unwrap().starts_with("case,model,backend,device,dtype,machine,batch_size,"),
        "{seen}"
    );
    assert!(seen["csv"][1].as_str().unwrap().starts_with("resnet50/tch-cpu-f32/1,resnet50,tch,cpu,f32,"), "{seen}");
    assert!(seen["copied"].as_str().unwrap().starts_with("model,backend,device,dtype,batch,p50 (ms),"), "{seen}");
    assert_eq!(seen["isSorted"], true, "{seen}");
    assert_eq!(seen["hasFocus"], serde_json::json!([true, true]), "{seen}");
    assert_eq!(seen["label"], "Copy as CSV", "{seen}");
    assert!(seen["drawn"].as_u64().unwrap() > 40, "{seen}");
}
