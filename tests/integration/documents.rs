//! What the documents say is true: their commands are accepted by the build that they name, their files exist, their suites are suites.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use clap::Parser;
use inferbench::catalogue::read_suite;
use inferbench::run_data::CriterionArguments;

use crate::support::documents::{all, blocks};
use crate::support::{Run, Workplace, checkout};

/// Stands in for the commands of the documents: writes its name, the `INFERBENCH_*` variables and its arguments down, at once, since
/// those of a pipe run at the same time.
const STUB: &str = "#!/bin/sh\n\
    { printf '%s' \"$0\"; env | grep '^INFERBENCH_' | while read -r variable; do printf '\\037%s' \"$variable\"; done\n\
    printf '\\036'; for argument; do printf '\\037%s' \"$argument\"; done; printf '\\035'; } > \"$COMMANDS.$$\"\n\
    cat \"$COMMANDS.$$\" >> \"$COMMANDS\"; rm \"$COMMANDS.$$\"\n";

/// One command of a document, as a shell understands it.
#[derive(Debug)]
struct Invocation {
    program: String,
    /// `NAME=VALUE`.
    variables: Vec<String>,
    arguments: Vec<String>,
}

/// Runs console blocks in a shell in which every command only writes itself down.
fn invocations(blocks: &[String]) -> Vec<Invocation> {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    // What `git clone` makes.
    fs::create_dir(folder.path().join("inferbench")).unwrap();
    let scripts = fs::read_dir(checkout().join("scripts")).unwrap();
    let scripts = scripts.map(|entry| folder.path().join("scripts").join(entry.unwrap().file_name()));
    let named = ["inferbench", "cargo", "git", "cp", "jq", "pip", "python3", "optimum-cli"].map(|name| bin.join(name));
    let of_environment = ["env/bin/pip", "env/bin/python"].map(|path| folder.path().join(path));
    for path in named.into_iter().chain(of_environment).chain(scripts) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, STUB).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let commands = folder.path().join("commands");
    fs::write(&commands, "").unwrap();
    for block in blocks {
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", block]).current_dir(folder.path()).env_clear();
        shell.env("PATH", &path).env("COMMANDS", &commands).env("HOME", folder.path());
        shell.finish().with_code(0);
    }
    let written = fs::read_to_string(commands).unwrap();
    let strings = |text: &str| text.split('\u{1f}').skip(1).map(String::from).collect();
    let parse = |line: &str| {
        let (head, arguments) = line.split_once('\u{1e}').unwrap();
        let program = head.split('\u{1f}').next().unwrap();
        let program = Path::new(program).strip_prefix(&bin).unwrap_or(Path::new(program)).display().to_string();
        Invocation { program, variables: strings(head), arguments: strings(arguments) }
    };
    written.split('\u{1d}').filter(|line| !line.is_empty()).map(parse).collect()
}

/// The documents, each with its commands.
fn commands() -> &'static [(PathBuf, Vec<Invocation>)] {
    static COMMANDS: OnceLock<Vec<(PathBuf, Vec<Invocation>)>> = OnceLock::new();
    COMMANDS.get_or_init(|| {
        let of = |document: PathBuf| {
            let found = invocations(&blocks(&document, "console"));
            (document, found)
        };
        all().into_iter().map(of).collect()
    })
}

/// What `cargo bench -- --help` prints.
fn help_of_bench() -> String {
    Workplace::new(&[], &[], &[]).bench(&["--help"]).finish().with_code(0).stdout
}

/// Checks a command line of inferbench without running it: `--help` at its end stops it after the parser.
fn check_inferbench(arguments: &[String]) {
    static CHECKED: Mutex<BTreeSet<Vec<String>>> = Mutex::new(BTreeSet::new());
    if !CHECKED.lock().unwrap_or_else(PoisonError::into_inner).insert(arguments.to_vec()) {
        return;
    }
    // The Python environments that the documents name.
    let folder = tempfile::tempdir().unwrap();
    for environment in ["old", "new"] {
        fs::create_dir(folder.path().join(environment)).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_inferbench"));
    command.args(arguments).arg("--help").current_dir(folder.path()).finish().with_code(0);
}

fn check_cargo(arguments: &[String]) {
    let mut parts = arguments.splitn(2, |argument| argument == "--");
    let (own, passed) = (parts.next().unwrap(), parts.next().unwrap_or_default());
    match own[0].as_str() {
        "run" => check_inferbench(passed),
        "bench" => {
            if let Some(position) = own.iter().position(|argument| argument == "--bench") {
                assert!(checkout().join(format!("benches/{}.rs", own[position + 1])).is_file(), "{own:?}");
            }
            if !passed.iter().any(|argument| argument == "--help") {
                CriterionArguments::try_parse_from(passed).unwrap();
            }
        }
        _ => {}
    }
}

#[test]
fn every_command_of_the_documents_is_accepted() {
    let help = help_of_bench();
    let mut checked = 0;
    for (document, invocations) in commands() {
        for invocation in invocations {
            for name in invocation.variables.iter().filter_map(|variable| variable.split('=').next()) {
                assert!(help.contains(name), "{}: {invocation:?}", document.display());
            }
            match invocation.program.as_str() {
                "inferbench" => check_inferbench(&invocation.arguments),
                "cargo" => check_cargo(&invocation.arguments),
                _ => {}
            }
            checked += 1;
        }
    }
    assert!(checked > 150, "{checked} commands");
}

/// The features that `scripts/bench` builds, and the defaults.
fn features_of_scripts_bench() -> BTreeSet<String> {
    let script = fs::read_to_string(checkout().join("scripts/bench")).unwrap();
    let features = script.split("INFERBENCH_FEATURES:-").nth(1).and_then(|rest| rest.split('}').next()).unwrap();
    for document in ["README.md", "src/guide/mod.rs"] {
        let text = fs::read_to_string(checkout().join(document)).unwrap();
        assert!(text.contains(&format!("with the features `{features}`")), "{document}: {features}");
    }
    with_defaults(features)
}

/// The Cargo features of the package.
fn all_features() -> toml::Table {
    let manifest: toml::Table = fs::read_to_string(checkout().join("Cargo.toml")).unwrap().parse().unwrap();
    manifest["features"].as_table().unwrap().clone()
}

/// These features, the defaults, and what they switch on.
fn with_defaults(features: &str) -> BTreeSet<String> {
    let all = all_features();
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = features.split(',').filter(|name| !name.is_empty()).chain(["default"]).collect();
    while let Some(name) = open.pop() {
        let implied = all.get(name).and_then(toml::Value::as_array).into_iter().flatten();
        if found.insert(name.to_owned()) {
            open.extend(implied.filter_map(toml::Value::as_str));
        }
    }
    found
}

/// The features that a command line of inferbench or of a bench needs: those of the backends that it names, and of subcommands and flags.
fn needed(arguments: &[String], variables: &[String]) -> BTreeSet<String> {
    let features = all_features();
    let flags = arguments.windows(2).filter(|pair| pair[0] == "--backend").map(|pair| pair[1].as_str());
    let variables = variables.iter().filter_map(|variable| variable.strip_prefix("INFERBENCH_BACKEND="));
    let named: Vec<&str> = flags.chain(variables).flat_map(|names| names.split(',')).collect();
    // `digits/ort`, `resnet50/tch-cpu-f32/1`.
    let is_in_id = |name: &str, argument: &String| {
        let rest = argument.split('/').nth(1).and_then(|function| function.strip_prefix(name));
        !Path::new(argument).exists() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let is_backend = |name: &str| named.contains(&name) || arguments.iter().any(|argument| is_in_id(name, argument));
    let mut needed: BTreeSet<String> = features.keys().filter(|name| is_backend(name)).cloned().collect();
    let has = |argument: &str| arguments.iter().any(|own| own == argument);
    let has_flag = ["--where", "--by", "--show", "--since"].into_iter().any(has);
    let is_sql = arguments.first().is_some_and(|it| it == "store") && has("query") && !has_flag;
    let others = [
        ("serve", arguments.first().is_some_and(|it| it == "serve")),
        ("charts", has("--charts")),
        ("http-load", has("--url")),
        ("duckdb", is_sql || arguments.iter().any(|argument| argument.ends_with(".duckdb"))),
        ("cpu-stacks", has("--cpu") || has("--profile-time")),
    ];
    needed.extend(others.into_iter().filter(|(_, is_needed)| *is_needed).map(|(name, _)| name.to_owned()));
    needed
}

#[test]
fn every_command_of_the_documents_runs_with_the_build_that_they_name() {
    let bench = features_of_scripts_bench();
    for (document, invocations) in commands() {
        // `inferbench` is what was built last: each command of cargo builds the executable anew.
        let mut built = bench.clone();
        for invocation in invocations {
            let Invocation { program, variables, arguments } = invocation;
            let needed = match program.as_str() {
                "inferbench" => needed(arguments, variables),
                "cargo" => {
                    let features = arguments.windows(2).find(|pair| pair[0] == "--features");
                    built = with_defaults(features.map_or("", |pair| pair[1].as_str()));
                    let passed = arguments.iter().position(|argument| argument == "--");
                    needed(passed.map_or(&[], |position| &arguments[position + 1..]), variables)
                }
                "scripts/bench" => {
                    built = bench.clone();
                    continue;
                }
                _ => continue,
            };
            let missing = Vec::from_iter(needed.difference(&built));
            assert!(missing.is_empty(), "{}: {invocation:?} needs {missing:?}", document.display());
        }
    }
}

#[test]
fn every_task_of_the_readme_has_a_command_that_runs_or_names_its_feature() {
    let readme = fs::read_to_string(checkout().join("README.md")).unwrap();
    let tasks = readme.split("| task | command | chapter |\n").nth(1).unwrap();
    let rows = tasks.lines().skip(1).take_while(|line| line.starts_with('|'));
    let mut checked = 0;
    for row in rows {
        let cell = row.split(" | ").nth(1).unwrap_or_default();
        let spans: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        let commands = spans.iter().filter(|span| span.starts_with("inferbench "));
        let named = cell.split("with the feature `").skip(1).filter_map(|rest| rest.split('`').next());
        let built = named.fold(features_of_scripts_bench(), |mut built, feature| {
            built.insert(feature.to_owned());
            built
        });
        for invocation in invocations(&commands.map(|span| (*span).to_owned()).collect::<Vec<String>>()) {
            check_inferbench(&invocation.arguments);
            let needed = needed(&invocation.arguments, &invocation.variables);
            assert!(needed.is_subset(&built), "{row} needs {needed:?}");
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked} commands");
}

#[test]
fn every_link_of_the_documents_leads_to_a_file() {
    for document in all() {
        let text = fs::read_to_string(&document).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for target in targets.filter(|target| !target.contains("://") && !target.contains("::") && !target.is_empty()) {
            let path = document.parent().unwrap().join(target);
            assert!(path.exists(), "{}: {target}", document.display());
        }
    }
}

#[test]
fn every_suite_of_the_documents_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut suites = 0;
    for document in all() {
        for block in blocks(&document, "toml") {
            toml::from_str::<toml::Table>(&block).unwrap_or_else(|error| panic!("{}: {error}", document.display()));
        }
        let of_kind = |kind| blocks(&document, kind).into_iter().map(move |block| (kind, block));
        for (kind, block) in of_kind("toml").chain(of_kind("json")).filter(|(_, block)| is_suite(block)) {
            let path = folder.path().join("suite").with_extension(kind);
            fs::write(&path, &block).unwrap();
            let suite =
                read_suite(path.to_str().unwrap(), folder.path()).unwrap_or_else(|error| panic!("{block}\n{error}"));
            assert!(!suite.models.is_empty());
            suites += 1;
        }
    }
    assert!(suites >= 3, "{suites} suites");
}

/// Whether a block is a whole suite, and not a part of one or a description of a model.
fn is_suite(block: &str) -> bool {
    block.contains("models = [") || block.starts_with('{')
}

#[test]
fn every_chapter_is_in_the_table_of_the_guide() {
    let guide = checkout().join("src/guide");
    let table = fs::read_to_string(guide.join("mod.rs")).unwrap();
    let files: Vec<PathBuf> = fs::read_dir(&guide).unwrap().map(|entry| entry.unwrap().path()).collect();
    for chapter in files.iter().filter(|path| path.extension().is_some_and(|it| it == "md")) {
        let name = chapter.file_stem().unwrap().display().to_string();
        assert!(table.contains(&format!("//! | [`{name}`] |")), "{name}");
    }
}

#[test]
fn a_pull_request_is_compared_with_the_base_that_it_is_merged_into() {
    let chapter = fs::read_to_string(checkout().join("src/guide/paired_benchmarks.md")).unwrap();
    // Its own commit lacks what has become faster in the base meanwhile, and would be called slower.
    assert!(chapter.contains("          base: HEAD^1\n") && !chapter.contains("pull_request.head.sha"));
}

/// The names of the form `INFERBENCH_…` in the string literals of a file, and in those of the files below a folder.
fn variables_in(path: &Path) -> BTreeSet<String> {
    if path.is_dir() {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        return entries.flat_map(|entry| variables_in(&entry)).collect();
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    let literals = text.split("\"INFERBENCH_").skip(1).filter_map(|rest| rest.split('"').next());
    literals.filter(|name| !name.is_empty()).map(|name| format!("INFERBENCH_{name}")).collect()
}

#[test]
fn the_help_of_cargo_bench_names_every_variable() {
    let help = help_of_bench();
    // Set for a process by the process that starts it, or by the compiler; the others are for `inferbench serve`, `inferbench fleet` and `inferbench load --url`.
    let internal = [
        "INFERBENCH_JOB",
        "INFERBENCH_FOUND",
        "INFERBENCH_PLACES",
        "INFERBENCH_PREPARED",
        "INFERBENCH_TRUSTED_FILES",
        "INFERBENCH_NATIVE",
        "INFERBENCH_SETUP",
        "INFERBENCH_SETUP_PYTHON",
        "INFERBENCH_PROBE",
        "INFERBENCH_RUNTIME_LOGS",
        "INFERBENCH_RUSTC",
        "INFERBENCH_STARTED_FOR",
        "INFERBENCH_TOKEN",
        "INFERBENCH_LOAD_TOKEN",
        "INFERBENCH_SSH",
        "INFERBENCH_EXECUTABLE",
        "INFERBENCH_PLAN",
        "INFERBENCH_PART_COUNT",
    ];
    let variables = variables_in(&checkout().join("src"));
    assert!(variables.len() > 20, "{variables:?}");
    for variable in variables.iter().filter(|name| !internal.contains(&name.as_str())) {
        assert!(help.contains(&format!("  {variable} ")), "{variable} is missing in\n{help}");
    }
}
