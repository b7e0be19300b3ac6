//! What the documents repeat from a table of the repository is what the table says: versions, sizes, counts, statuses, names, groups.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use clap::Parser;
use inferbench::definition::{Boundary, Case, Dtype, Phase, Status, TimedOn};
use inferbench::run_data::CriterionArguments;
use inferbench::statistics::{calls_for_bound, queries_for};
use regex::Regex;

use crate::support::{Run, checkout};

fn text(path: &str) -> String {
    fs::read_to_string(checkout().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Fails unless the document has all of these.
#[track_caller]
fn says(document: &str, parts: &[String]) {
    let text = text(document);
    for part in parts {
        assert!(text.contains(part), "{document} does not say {part:?}");
    }
}

/// The cells of the rows of a table that begins with this line.
fn rows(document: &str, heading: &str) -> Vec<Vec<String>> {
    let text = text(document);
    let table = text.split(heading).nth(1).unwrap_or_else(|| panic!("{document} has no table {heading:?}"));
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    // A bar inside of a cell is escaped.
    let cells = |line: &str| -> Vec<String> {
        let line = line.replace("\\|", "\u{1}");
        line.trim_matches('|').split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect()
    };
    lines.map(cells).collect()
}

/// What a cell has in backquotes.
fn code(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn versions_of_libraries_are_those_that_are_pinned() {
    let setup = text("scripts/setup");
    let pin = Regex::new(r#"= (?:Wheel|NpmPackage)\(\s*"([^"]+)",\s*"([^"]+)""#).unwrap();
    let pins: BTreeMap<&str, &str> = pin
        .captures_iter(&setup)
        .map(|found| found.extract())
        .map(|(_, [package, version])| (package, version))
        .collect();
    let required = |package: &str| {
        let lines = text(&format!("scripts/{package}-requirements.txt"));
        lines
            .lines()
            .find_map(|line| Some(line.strip_prefix(package)?.strip_prefix("==")?.split(' ').next()?.to_owned()))
            .unwrap()
    };
    let manifest: toml::Table = text("Cargo.toml").parse().unwrap();
    let rust = manifest["package"]["rust-version"].as_str().unwrap();
    let readme = [
        format!("Rust {rust}"),
        format!("ONNX Runtime {}", pins["onnxruntime"]),
        format!("libtorch {}", pins["torch"]),
        format!("OpenVINO {}", pins["openvino"]),
        format!("ONNX Runtime Web {}", pins["onnxruntime-web"]),
        format!("JAX {}", required("jax")),
        format!("PyTorch {}", required("torch")),
    ];
    says("README.md", &readme);
    let chromium = pins["@sparticuz/chromium"].split('.').next().unwrap();
    let browser = [format!("Chromium {chromium}"), format!("ONNX Runtime Web {}", pins["onnxruntime-web"])];
    says("src/guide/workers.md", &browser);
}

#[test]
fn sizes_of_downloads_are_those_of_scripts_setup() {
    let listed = Command::new("python3").arg(checkout().join("scripts/setup")).arg("--list").finish().with_code(0);
    let line = Regex::new(r"(?m)^(\S.*?) +(\d+) MB +(\d+) MB").unwrap();
    let parts = line.captures_iter(&listed.stdout).map(|found| found.extract());
    let sizes: BTreeMap<String, [u32; 2]> = parts
        .map(|(_, [part, download, disk])| (part.to_owned(), [download, disk].map(|size| size.parse().unwrap())))
        .collect();
    let of = |part: &str| sizes[part];
    says("README.md", &[format!("({} MB)", of("ort")[0] + of("tch")[0])]);
    let to_get = |[download, disk]: [u32; 2]| format!("{download} MB to download, {disk} MB on disk");
    says("src/guide/workers.md", &[to_get(of("jax")), to_get(of("browser"))]);
    says("src/guide/history.md", &[format!("`scripts/setup duckdb` ({} MB)", of("duckdb")[0])]);
    let [openvino, qnn, webgpu] = ["openvino", "qnn", "webgpu"].map(|device| of(&format!("--device {device}"))[0]);
    says("src/guide/devices.md", &[format!("are {openvino}, {qnn} and {webgpu} MB")]);
}

#[test]
fn an_environment_whose_python_has_gone_is_got_anew() {
    let cache = tempfile::tempdir().unwrap();
    let place = cache.path().join("inferbench/jax");
    fs::create_dir_all(place.join("bin")).unwrap();
    fs::copy(checkout().join("scripts/jax-requirements.txt"), place.join("requirements")).unwrap();
    let is_ready = |target: &str| {
        let python = place.join("bin/python");
        let _ = fs::remove_file(&python);
        std::os::unix::fs::symlink(target, &python).unwrap();
        let mut listed = Command::new("python3");
        listed.arg(checkout().join("scripts/setup")).arg("--list").env("XDG_CACHE_HOME", cache.path());
        listed.finish().with_code(0).stdout.lines().any(|line| line.starts_with("jax ") && line.ends_with(" ready"))
    };
    assert!(is_ready("/bin/true") && !is_ready("/nowhere/python3") && !is_ready("/bin/false"));
}

#[test]
fn counts_and_sizes_of_models_are_those_of_the_zoo_and_the_suites() {
    let mut families = BTreeSet::new();
    for entry in fs::read_dir(checkout().join("models/zoo")).unwrap() {
        let path = entry.unwrap().path().join("model.toml");
        let model: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
        families.insert(model["family"].as_str().unwrap().to_owned());
    }
    says("README.md", &[format!("{} families of models", families.len())]);
    says("CHANGELOG.md", &[format!("models of {} families", families.len())]);
    let suites: BTreeMap<String, String> = rows("models/README.md", "| suite | content | prepared | takes |")
        .into_iter()
        .map(|row| (code(&row[0])[0].to_owned(), row[2].clone()))
        .collect();
    let files = fs::read_dir(checkout().join("models/suites")).unwrap().map(|entry| entry.unwrap().path());
    let names: BTreeSet<String> = files.map(|path| path.file_stem().unwrap().display().to_string()).collect();
    assert_eq!(suites.keys().cloned().collect::<BTreeSet<String>>(), names);
    assert_eq!(suites["key"], suites["full"]);
    let measuring = ["quick", "small", "variants"].map(|name| format!("`{name}` ({}", suites[name]));
    says("src/guide/measuring.md", &measuring);
    for document in ["README.md", "src/guide/measuring.md"] {
        says(document, &[suites["quick"].clone(), format!("{} each", suites["key"])]);
    }
}

#[test]
fn numbers_of_calls_for_a_bound_are_those_of_the_formulas() {
    let [none, one, five] = [0, 1, 5].map(|over| queries_for(0.99, over, 1.0));
    assert_eq!(calls_for_bound(0.99) as u64, one);
    says("src/guide/measuring.md", &[format!("p99 needs {one} independent calls")]);
    says("src/guide/method.md", &[format!("p99 needs {one}"), format!("needs {none} independent queries")]);
    let five = format!("{},{:03}", five / 1000, five % 1000);
    let serving = [format!("asks for {none} requests"), format!("{one} if it is 1"), format!("{five} if it is 5")];
    says("src/guide/serving.md", &serving);
}

#[test]
fn every_status_and_every_feature_has_its_row() {
    // The schema has the statuses as constants of its parts.
    let schema = schemars::schema_for!(Status).as_value().to_string();
    let names = Regex::new(r#""const":"([a-z-]+)"|"enum":\[([^\]]+)\]"#).unwrap();
    let quoted = Regex::new(r#""([a-z-]+)""#).unwrap();
    let mut statuses = BTreeSet::new();
    for found in names.captures_iter(&schema) {
        let of_list = found.get(2).map_or("", |list| list.as_str());
        statuses.extend(quoted.captures_iter(of_list).map(|name| name[1].to_owned()));
        statuses.extend(found.get(1).map(|name| name.as_str().to_owned()));
    }
    // No run gives it.
    statuses.remove("unstable");
    let described = rows("src/guide/results.md", "| status | meaning |");
    assert_eq!(described.iter().map(|row| code(&row[0])[0].to_owned()).collect::<BTreeSet<_>>(), statuses);

    let manifest: toml::Table = text("Cargo.toml").parse().unwrap();
    let described = rows("src/guide/own_crate.md", "| feature | what it adds | what it needs |");
    let described: BTreeSet<&str> = described.iter().flat_map(|row| code(&row[0])).collect();
    let features = manifest["features"].as_table().unwrap().keys().map(String::as_str);
    let features: BTreeSet<&str> = features.filter(|name| *name != "default").collect();
    let differing: Vec<_> = described.symmetric_difference(&features).collect();
    assert!(differing.is_empty(), "src/guide/own_crate.md and Cargo.toml differ in the features {differing:?}");
}

#[test]
fn the_ids_of_the_guide_are_those_of_cases_and_match_as_it_says() {
    let case = |model: &str, backend: &str, batch_size| Case::new(model, backend, batch_size);
    let cases = [
        case("resnet50", "ort", 1),
        Case { variant: "int8-static".into(), dtype: Dtype::I8, ..case("resnet50", "ort", 8) },
        Case { boundary: Boundary::EndToEnd, device: "cuda:1".into(), ..case("resnet50", "ort", 8) },
        Case { dims: "height=384,width=384".parse().unwrap(), ..case("resnet50", "ort", 1) },
        Case { sequence_length: Some(128), ..case("bert-small", "ort", 1) },
        Case {
            sequence_length: Some(32),
            phase: Phase::Decode,
            dtype: Dtype::Bf16,
            ..case("llama-small", "candle", 4)
        },
        Case { sequence_length: Some(16), timed_on: TimedOn::Samples, ..case("my-bert", "ort", 1) },
        Case { boundary: Boundary::Pipeline, timed_on: TimedOn::Samples, ..case("resnet50", "ort", 1) },
        case("tokenise", "closure", 128),
    ];
    let described = rows("src/guide/measuring.md", "| id | case |");
    let ids: Vec<&str> = described.iter().flat_map(|row| code(&row[0])).collect();
    assert_eq!(ids, cases.map(|case| case.to_string()));

    let filters = rows("src/guide/measuring.md", "| filter | matches | does not match |");
    assert!(filters.len() >= 4);
    for row in filters {
        let filter = code(&row[0])[0];
        let matches = CriterionArguments::try_parse_from(["--bench", filter]).unwrap().id_filter().unwrap();
        assert!(code(&row[1]).iter().all(|id| matches.is_match(id)), "{row:?}");
        assert!(!code(&row[2]).iter().any(|id| matches.is_match(id)), "{row:?}");
    }
}

#[test]
fn the_first_page_of_the_guide_has_the_groups_of_the_help() {
    let help = Command::new(env!("CARGO_BIN_EXE_inferbench")).arg("--help").finish().with_code(0).stdout;
    let page = text("src/guide/mod.rs");
    let groups = help.lines().take_while(|line| *line != "Options:").filter_map(|line| line.strip_suffix(':'));
    let groups: Vec<&str> = groups.collect();
    assert_eq!(groups, ["Measure", "Models", "Results", "Machines"]);
    for group in groups {
        let of_help = help.split(&format!("\n{group}:\n")).nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap();
        let of_help: BTreeSet<&str> = of_help.lines().filter_map(|line| line.split_whitespace().next()).collect();
        let section =
            page.split(&format!("//! # {group}\n")).nth(1).and_then(|rest| rest.split("//! # ").next()).unwrap();
        let rows = section.lines().filter(|line| line.starts_with("//! | [`"));
        let of_guide: BTreeSet<&str> = rows.flat_map(|row| code(row.split('|').nth(2).unwrap_or_default())).collect();
        assert_eq!(of_guide, of_help, "the group {group} in src/guide/mod.rs (left) and in --help");
    }
}
