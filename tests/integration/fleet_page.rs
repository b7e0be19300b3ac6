//! Machines side by side: the matrix of cases and machines, which machines are equal, and a fleet that is too large for columns.

use std::fs;
use std::path::Path;
use std::time::Instant;

use inferbench::machine::Machine;
use serde_json::Value;

use crate::support::synthetic::{Shape, give_machine, write_runs};
use crate::support::{Run, Workplace, chromium};

/// A machine of a kind, so many times as fast as others in its cases and its calibration.
struct Made<'a> {
    host_id: &'a str,
    cpu_model: &'a str,
    speed: f64,
}

fn make(reports: &Path, runs: usize, cases: usize, Made { host_id, cpu_model, speed }: Made<'_>) {
    let machine = Machine {
        host_id: host_id.into(),
        os: "linux".into(),
        architecture: "x86_64".into(),
        cpu_model: Some(cpu_model.into()),
        logical_processors: 8,
        memory_bytes: Some(33_000_000_000),
        ..Machine::default()
    };
    for run_id in write_runs(reports, Shape { runs, cases, host: (host_id, speed) }) {
        give_machine(reports, &run_id, &machine, [(400.0 * speed, 20.0 * speed), (402.0 * speed, 20.1 * speed)]);
    }
}

const SMALL: &str = "Small CPU 1000";
const LARGE: &str = "Large CPU 9000";

/// Two small machines and a third that is slower than it should be, and a large one.
fn four_machines() -> Workplace {
    let workplace = Workplace::new(&[], &[], &[1]);
    let reports = workplace.path("target-reports");
    for (host_id, cpu_model, speed) in
        [("aaaa1111", SMALL, 1.0), ("bbbb2222", SMALL, 1.0), ("cccc3333", SMALL, 0.6), ("dddd4444", LARGE, 5.0)]
    {
        make(&reports, 3, 24, Made { host_id, cpu_model, speed });
    }
    workplace.write("prices.toml", "currency = \"USD\"\nper_hour = { default = 0.4, dddd4444 = 3.0 }\n");
    workplace
}

fn fleet(workplace: &Workplace, arguments: &[&str]) -> Value {
    let all = [&["report", "--machines", "--format", "json"], arguments].concat();
    serde_json::from_str(&workplace.inferbench(&all).finish().with_code(0).stdout).unwrap()
}

fn page(workplace: &Workplace, arguments: &[&str]) -> String {
    let all = [&["report", "--machines", "--format", "html", "--output", "page.html"], arguments].concat();
    workplace.inferbench(&all).finish().with_code(0);
    fs::read_to_string(workplace.path("page.html")).unwrap()
}

fn strings<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|it| it[field].as_str().unwrap()).collect()
}

#[test]
fn cases_are_down_and_machines_across_and_the_one_that_differs_is_named() {
    let workplace = four_machines();
    let found = fleet(&workplace, &["--last", "3", "--price", "prices.toml"]);
    assert_eq!(strings(&found["columns"], "host_id"), ["aaaa1111", "bbbb2222", "cccc3333", "dddd4444"]);
    assert_eq!(found["cases"].as_array().unwrap().len(), 24);
    let differing = strings(&found["differences"], "host_id");
    assert!(!differing.is_empty() && differing.iter().all(|host_id| *host_id == "cccc3333"), "{differing:?}");
    let kinds = found["kinds"].as_array().unwrap();
    let small = kinds.iter().find(|kind| kind["name"].as_str().unwrap().starts_with(SMALL)).unwrap();
    assert_eq!((&small["machines"], &small["differing"]), (&3.into(), &1.into()));
    let spread = small["anchor_spread"].as_f64().unwrap();
    assert!((spread - 1.0 / 0.6).abs() < 0.1, "{spread}");
    // The large machine is five times as fast, and 7.5 times as dear.
    let cells = found["cases"][0]["cells"].as_array().unwrap();
    let figure = |place: usize, name: &str| cells[place][name].as_f64().unwrap();
    assert!(figure(3, "latency_p50_ms") < 0.3 * figure(0, "latency_p50_ms"));
    assert!(figure(3, "price_per_million") > 1.3 * figure(0, "price_per_million"));
    // The trend: the first backend is 30 % slower in the last run.
    let trend = found["machines"][0]["trend"].as_array().unwrap();
    assert_eq!(trend.len(), 3);
    assert!(trend[2].as_f64().unwrap() > 1.04, "{trend:?}");
}

#[test]
fn tables_and_json_show_the_same_matrix() {
    let workplace = four_machines();
    let printed = |arguments: &[&str]| workplace.inferbench(arguments).finish().with_code(0).stdout;
    let table = printed(&["report", "--machines"]);
    assert!(table.contains("Small 1000 ×8 cccc (differs)") && table.contains("is not equal to"), "{table}");
    let markdown = printed(&["report", "--machines", "--format", "markdown", "--model", "resnet50"]);
    assert!(
        markdown.contains("## Cases and machines") && markdown.contains("| `resnet50/ort-cpu-f32/1` |"),
        "{markdown}"
    );
    // The reports about several runs begin with it.
    let several = printed(&["report", "--all", "--format", "markdown"]);
    assert!(several.starts_with("## Cases and machines") && several.contains("## Run 2026"), "{several}");
    let schema: Value = serde_json::from_str(&printed(&["report", "--machines", "--format", "json-schema"])).unwrap();
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("fleet.json", schema).unwrap();
    let compiled = compiler.compile("fleet.json", &mut schemas).unwrap();
    let mut found = fleet(&workplace, &[]);
    schemas.validate(&found, compiled).unwrap();
    found["columns"][0]["machines"] = "one".into();
    assert!(schemas.validate(&found, compiled).is_err());
    workplace
        .inferbench(&["report", "--machines", "--model", "nosuch"])
        .finish()
        .with_code(2)
        .saying(&["no case passes"]);
    fs::create_dir_all(workplace.path("target-reports/20250101T000000Z")).unwrap();
    workplace.write("target-reports/20250101T000000Z/results.csv", "no records");
    let unread = workplace.inferbench(&["report", "--machines"]).finish().with_code(0);
    assert_eq!(unread.saying(&["left out: ", "20250101T000000Z"]).stdout, table);
}

#[test]
fn of_many_machines_those_of_a_kind_share_a_column_and_no_other_is_in_the_mean() {
    let workplace = Workplace::new(&[], &[], &[1]);
    let reports = workplace.path("target-reports");
    for number in 0..12 {
        let speed = if number == 7 { 0.5 } else { 1.0 };
        make(&reports, 1, 8, Made { host_id: &format!("{number:08x}"), cpu_model: SMALL, speed });
    }
    make(&reports, 1, 8, Made { host_id: "ffff0000", cpu_model: LARGE, speed: 4.0 });
    let found = fleet(&workplace, &[]);
    let columns = found["columns"].as_array().unwrap();
    assert_eq!(columns.iter().map(|column| column["machines"].as_u64().unwrap()).collect::<Vec<_>>(), [11, 1, 1]);
    assert_eq!((&columns[2]["host_id"], &columns[2]["is_differing"]), (&"00000007".into(), &true.into()));
    let cells = found["cases"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[0]["machines"], 11);
    assert!(cells[0]["spread"].as_f64().unwrap() < 1.2, "{cells:?}");
    let page = page(&workplace, &[]);
    assert!(page.contains("on 13 machines"));
    // What is no page has the records of every machine.
    let printed =
        |format: &str| workplace.inferbench(&["report", "--all", "--format", format]).finish().with_code(0).stdout;
    let records: Value = serde_json::from_str(&printed("json")).unwrap();
    assert_eq!(records.as_array().unwrap().len(), 13 * 8);
    assert_eq!(printed("junit").matches("<testsuite ").count(), 13);
}

#[test]
fn a_calibrated_run_has_looked_at_the_machine_before_and_after() {
    let workplace = Workplace::new(&["digits"], &["null"], &[1]);
    workplace.inferbench(&["run", "--benchmark-only", "--noplot", "--calibrate"]).finish().with_code(0);
    let manifest = workplace.latest_run().read_manifest().unwrap();
    let [calibration] = manifest.calibrations.as_slice() else { panic!("{:?}", manifest.calibrations) };
    assert_eq!(calibration.host_id, manifest.machine.host_id);
    assert_eq!(calibration.probes().filter_map(|probe| probe.best()).count(), 2);
    let found = fleet(&workplace, &[]);
    assert!(found["machines"][0]["product_gflops_per_second"].as_f64().unwrap() > 0.0, "{found}");
    assert_eq!(strings(&found["columns"], "host_id"), [manifest.machine.host_id]);
}

/// Reads what a reader sees of the section about machines, and uses its buttons.
const READER: &str = "addEventListener('load', () => {
    const cells = (selector) => [...document.querySelectorAll(selector)].map((cell) => cell.textContent);
    const seen = { columns: cells('#fleet thead th'), best: document.querySelectorAll('#fleet td.best').length, rows: document.querySelectorAll('#fleet tbody tr').length };
    seen.machines = document.querySelectorAll('#equality tbody tr').length;
    seen.lines = cells('#equality li');
    seen.trends = document.querySelectorAll('#equality svg').length;
    seen.first = cells('#fleet tbody tr:first-child td');
    [...document.querySelectorAll('#fleet .chip')].at(-1)?.click();
    seen.price = cells('#fleet tbody tr:first-child td');
    const start = performance.now();
    document.querySelector('#filters .chip').click();
    document.body.getBoundingClientRect();
    seen.milliseconds = Math.round(performance.now() - start);
    seen.filtered = document.querySelectorAll('#fleet tbody tr').length;
    seen.opened = Math.round(performance.timing.loadEventStart - performance.timing.navigationStart);
    const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).filter((rule) => rule.media?.mediaText === 'print');
    document.head.append(make('style', {}, rules.flatMap((rule) => [...rule.cssRules].map((own) => own.cssText)).join(' ')));
    seen.heightOnPaper = getComputedStyle(document.querySelector('#fleet .tall')).maxHeight;
    seen.errors = window.errors;
    document.body.replaceChildren(make('pre', { id: 'seen' }, JSON.stringify(seen)));
});";

#[test]
fn a_browser_shows_the_best_machine_of_each_case() {
    let workplace = four_machines();
    let page = page(&workplace, &["--last", "3", "--price", "prices.toml"]);
    let Some(seen) = chromium::read(&page, READER, &workplace.path(""), "") else { return };
    assert_eq!(seen["errors"], serde_json::json!([]), "{seen}");
    assert_eq!(
        (&seen["best"], &seen["rows"], &seen["machines"], &seen["trends"]),
        (&24.into(), &24.into(), &4.into(), &4.into())
    );
    assert!(seen["columns"][3].as_str().unwrap().ends_with("differs"), "{seen}");
    assert_eq!(seen["heightOnPaper"], "none", "{seen}");
    assert!(seen["lines"].to_string().contains("is not equal to"), "{seen}");
    assert!(seen["first"] != seen["price"] && seen["filtered"].as_u64().unwrap() < 24, "{seen}");
}

/// The figures of the guide: `cargo test --release --test integration fleet_page::a_large_fleet -- --ignored --nocapture`, with
/// `MACHINES`, `CASES`, `RUNS` and `PAGE` (a file for the page) in the environment.
#[test]
#[ignore = "prints the figures of the guide, which takes minutes and gigabytes"]
fn a_large_fleet_has_a_page_that_opens() {
    let number = |name: &str, otherwise| std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap());
    let (machines, cases, runs) = (number("MACHINES", 1000), number("CASES", 1000), number("RUNS", 1));
    let workplace = Workplace::new(&[], &[], &[1]);
    let reports = workplace.path("made");
    for machine in 0..machines {
        let kinds = [SMALL, LARGE, "Other CPU 1", "Other CPU 2", "Other CPU 3"];
        let kind = machine % kinds.len();
        let speed = (1 + kind) as f64 * if machine % 100 == 99 { 0.6 } else { 1.0 };
        let host_id = format!("{:08x}", machine as u32 ^ 0x5a5a_5a5a);
        make(&reports, runs, cases, Made { host_id: &host_id, cpu_model: kinds[kind], speed });
    }
    let start = Instant::now();
    workplace.inferbench(&["store", "import", "made"]).finish().with_code(0);
    let size = walkdir::WalkDir::new(workplace.path("target-reports"))
        .into_iter()
        .map(|it| it.unwrap().metadata().unwrap().len())
        .sum::<u64>();
    eprintln!(
        "{machines} machines, {cases} cases, {runs} runs: {} MB imported in {:?}",
        size / 1_000_000,
        start.elapsed()
    );
    let start = Instant::now();
    let page = page(&workplace, &["--last", &runs.to_string()]);
    eprintln!("page: {} kB in {:?}", page.len() / 1000, start.elapsed());
    if let Ok(file) = std::env::var("PAGE") {
        fs::write(file, &page).unwrap();
    }
    let sql =
        "SELECT host_id, count(*) FROM benchmark_results WHERE model = 'resnet50' GROUP BY ALL ORDER BY 2 LIMIT 1";
    let start = Instant::now();
    workplace.inferbench(&["store", "query", sql]).finish().with_code(0);
    eprintln!("query of all records: {:?}", start.elapsed());
    let start = Instant::now();
    let seen = chromium::read(&page, READER, &workplace.path(""), "").unwrap();
    eprintln!(
        "opened in {} ms (Chromium in all {:?}), a filter takes {} ms",
        seen["opened"],
        start.elapsed(),
        seen["milliseconds"]
    );
    assert_eq!(seen["errors"], serde_json::json!([]), "{seen}");
}
