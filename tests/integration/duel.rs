//! Duels: of the package's own executable, of stand-ins whose times are known, and of revisions that are built.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::{Finished, Run, Workplace, wait_for};

fn workplace() -> Workplace {
    Workplace::new(&["digits"], &["null"], &[1])
}

/// An executable that speaks the protocol: `shell` sets `median` and may set `status`.
fn stand_in(workplace: &Workplace, name: &str, shell: &str) -> PathBuf {
    let script = format!(
        "#!/bin/sh\nmedian=100000\nstatus=ok\n{shell}\nfigures=\"{{\\\"calls\\\":10,\\\"median_ns\\\":$median,\
         \\\"mean_ns\\\":$median,\\\"p99_ns\\\":$median}}\"\n[ $status = ok ] || figures=null\n\
         echo \"{{\\\"format\\\":1,\\\"cases\\\":[{{\\\"id\\\":\\\"m/x/1\\\",\\\"status\\\":\\\"$status\\\",\
         \\\"message\\\":null,\\\"figures\\\":$figures}}]}}\"\n"
    );
    workplace.write(name, script);
    let path = workplace.path(name);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn duel(workplace: &Workplace, sides: [&str; 2], arguments: &[&str]) -> Command {
    let mut command = workplace.inferbench(&["duel"]);
    command.args(sides).args(["--rounds", "10", "--seconds", "0.01", "--format", "json"]).args(arguments);
    command
}

fn json(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {}", finished.stdout))
}

fn verdict(finished: &Finished) -> String {
    json(finished)["cases"][0]["judgement"]["verdict"].as_str().unwrap_or("none").to_owned()
}

/// A little noise of a process, so that no two medians need to be equal.
const NOISE: &str = "median=$((median + $$ % 7 * 100))";

#[test]
fn a_slow_down_of_the_own_executable_is_found() {
    let workplace = workplace();
    let slowed = duel(&workplace, [".", "."], &["--null-slowdown", "3000%"]).finish().with_code(1);
    assert_eq!(verdict(&slowed), "slower");
    slowed.saying(&["round 10/10", "digits/null-cpu-f32/1: +", "no verdict yet"]);
    assert!(workplace.measured().is_empty() && !workplace.runs().join("..").join("unkept-runs").exists());
}

#[test]
fn stand_ins_with_known_times_get_the_verdict_that_they_deserve() {
    let workplace = workplace();
    stand_in(&workplace, "equal", "");
    stand_in(&workplace, "base", NOISE);
    stand_in(&workplace, "slow", &format!("median=105000; {NOISE}"));
    let equal = duel(&workplace, ["./equal", "./equal"], &[]).finish().with_code(0);
    assert_eq!(verdict(&equal), "same");
    let slower = duel(&workplace, ["./base", "./slow"], &[]).finish().with_code(1);
    assert_eq!(verdict(&slower), "slower");
    let faster = duel(&workplace, ["./slow", "./base"], &["--seed", "5"]).finish().with_code(0);
    assert_eq!((verdict(&faster).as_str(), &json(&faster)["seed"]), ("faster", &Value::from(5)));
    let mut early = workplace.inferbench(&["duel", "./base", "./slow", "--sequential", "--rounds", "60"]);
    let early = early.args(["--format", "json"]).finish().with_code(1);
    assert!(json(&early)["rounds"].as_u64().unwrap() < 30, "{}", early.stdout);
    let mut markdown = workplace.inferbench(&["duel", "./base", "./slow", "--rounds", "8", "--format", "markdown"]);
    let markdown = markdown.finish().with_code(1).stdout;
    assert!(markdown.starts_with("### a regression\n") && markdown.contains("| slower |"), "{markdown}");
}

#[test]
fn a_null_control_that_moves_is_said_instead_of_a_verdict() {
    let workplace = workplace();
    stand_in(&workplace, "haunted", &format!("case $0 in */n/inferbench) median=110000 ;; esac; {NOISE}"));
    let unstable = duel(&workplace, ["./haunted", "./haunted"], &[]).finish().with_code(4);
    assert_eq!(verdict(&unstable), "cannot-say");
    assert_eq!(json(&unstable)["cases"][0]["judgement"]["is_null_changed"], true);
}

#[test]
fn a_wrong_output_is_the_candidates_loss_and_never_timed() {
    let workplace = workplace();
    stand_in(&workplace, "base", "");
    stand_in(&workplace, "wrong", "status=wrong-output");
    let lost = duel(&workplace, ["./base", "./wrong"], &[]).finish().with_code(1);
    assert_eq!(json(&lost)["cases"][0]["trouble"]["status"], "wrong-output");
    lost.saying(&["m/x/1: wrong-output in ./wrong"]);
    duel(&workplace, ["./wrong", "./base"], &[]).finish().with_code(3);
}

#[test]
fn suites_of_other_models_are_compared_case_by_case() {
    let workplace = workplace();
    for model in ["digits", "tenn_eeg"] {
        let suite = format!("models = [{{ name = {model:?} }}]\nbackends = ['null']\nbatch_sizes = [1]\n");
        workplace.write(&format!("{model}.toml"), suite);
    }
    let mut command = duel(&workplace, ["digits.toml", "tenn_eeg.toml"], &[]);
    let finished = command.finish();
    assert_eq!(json(&finished)["cases"][0]["id"], "digits/null-cpu-f32/1 → tenn_eeg/null-cpu-f32/1");
}

#[test]
fn bad_sides_and_too_few_rounds_are_refused() {
    let workplace = workplace();
    stand_in(&workplace, "base", "");
    stand_in(&workplace, "old", "echo \"error: unrecognized subcommand 'round'\" >&2; exit 2");
    let old = duel(&workplace, ["./base", "./old"], &[]).finish().with_code(2);
    old.saying(&["./old has no `inferbench round`"]);
    workplace.write("notes", "not an executable");
    duel(&workplace, ["./base", "notes"], &[]).finish().with_code(2).saying(&["neither an executable nor a suite"]);
    let few = workplace.inferbench(&["duel", "./base", "./base", "--rounds", "7"]).finish().with_code(2);
    few.saying(&["7 rounds can show nothing of 1 cases", "at least 8"]);
    let unknown = duel(&workplace, [".", "."], &["--model", "nothing"]).finish().with_code(2);
    unknown.saying(&["no model \"nothing\""]);
    duel(&workplace, ["./base", "./absent"], &[]).finish().with_code(2);
}

#[test]
fn a_duel_that_was_stopped_goes_on_where_it_was() {
    let workplace = workplace();
    stand_in(&workplace, "base", "sleep 0.1");
    let duels = workplace.path("target/inferbench/duel");
    let fought = || {
        let folder = fs::read_dir(&duels).ok()?.flatten().map(|entry| entry.path().join("rounds.jsonl"));
        let path = folder.into_iter().find(|path| path.is_file())?;
        Some(fs::read_to_string(path).ok()?.lines().count())
    };
    let sides = ["./base", "./base"];
    let refused = duel(&workplace, sides, &["--resume"]).finish().with_code(2);
    refused.saying(&["there is nothing to resume"]);

    let mut running = duel(&workplace, sides, &[]).start(&workplace.path("log.txt"));
    wait_for("two rounds", || fought().filter(|rounds| *rounds >= 2));
    running.interrupt();
    assert_eq!(running.wait().code(), Some(130));
    assert!(fs::read_to_string(workplace.path("log.txt")).unwrap().contains("of 10 rounds are kept"));

    let before = fought().unwrap();
    let mut running = duel(&workplace, sides, &["--resume"]).start(&workplace.path("log.txt"));
    wait_for("one round more", || fought().filter(|rounds| *rounds > before));
    running.kill();
    running.wait();

    let other = duel(&workplace, sides, &["--resume", "--tolerance", "2%"]).finish().with_code(2);
    other.saying(&["there is nothing to resume"]);
    let resumed = duel(&workplace, sides, &["--resume"]).finish().with_code(0);
    assert_eq!((json(&resumed)["rounds"].as_u64(), fought()), (Some(10), Some(10)));
    assert!(resumed.stderr.contains("resuming duel "), "{}", resumed.stderr);
}

/// A git repository in the workplace with one commit for each source of a package that stands in for this one.
fn repository(workplace: &Workplace, sources: &[&str]) {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(workplace.path("")).args(["-c", "user.name=t", "-c", "user.email=t@example.org"]);
        command.args(arguments).finish().with_code(0)
    };
    git(&["init", "--quiet", "--initial-branch", "main"]);
    let manifest = "[package]\nname = \"inferbench\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
         [features]\nort = []\ntch = []\ncandle = []\ntract = []\n[workspace]\n";
    workplace.write("Cargo.toml", manifest);
    workplace.write("Cargo.lock", "version = 4\n\n[[package]]\nname = \"inferbench\"\nversion = \"0.1.0\"\n");
    fs::create_dir_all(workplace.path("src")).unwrap();
    for (index, source) in sources.iter().enumerate() {
        workplace.write("src/main.rs", source);
        git(&["add", "Cargo.toml", "Cargo.lock", "src"]);
        git(&["commit", "--quiet", "--message", "a revision"]);
        git(&["tag", &format!("v{index}")]);
    }
}

fn source(median: u32) -> String {
    format!(
        "fn main() {{ println!(r#\"{{{{\"format\":1,\"cases\":[{{{{\"id\":\"m/x/1\",\"status\":\"ok\",\"message\":null,\
         \"figures\":{{{{\"calls\":10,\"median_ns\":{{0}},\"mean_ns\":{{0}},\"p99_ns\":{{0}}}}}}}}}}]}}}}\"#, \
         {median} + std::process::id() % 7); }}\n"
    )
}

#[test]
fn revisions_are_built_once_each_and_their_worktrees_removed() {
    let workplace = workplace();
    repository(&workplace, &[&source(1000), &source(1300)]);
    let slower = duel(&workplace, ["v0", "main"], &[]).finish().with_code(1);
    assert_eq!((verdict(&slower).as_str(), slower.stderr.matches("building ").count()), ("slower", 2));
    let again = duel(&workplace, ["main", "v1"], &[]).finish();
    assert!(!again.stderr.contains("building ") && json(&again)["base"]["commit"].is_string(), "{}", again.stderr);
    let worktrees = fs::read_dir(workplace.path("target/inferbench/duel/worktrees")).unwrap();
    assert_eq!(worktrees.count(), 0);
    let mut list = Command::new("git");
    let list = list.current_dir(workplace.path("")).args(["worktree", "list"]).finish().with_code(0);
    assert_eq!(list.stdout.lines().count(), 1, "{}", list.stdout);
}

#[test]
fn a_revision_that_is_not_there_or_does_not_build_is_said_with_its_reason() {
    let workplace = workplace();
    let none = duel(&workplace, ["main", "main"], &[]).finish().with_code(2);
    none.saying(&["is no git repository"]);
    repository(&workplace, &["fn main() { nonsense() }\n"]);
    duel(&workplace, ["main", "v9"], &[]).finish().with_code(2).saying(&["\"v9\" is no revision of"]);
    let broken = duel(&workplace, ["main", "main"], &[]).finish().with_code(2);
    broken.saying(&["main does not build", "cannot find function `nonsense`"]);
    assert_eq!(fs::read_dir(workplace.path("target/inferbench/duel/worktrees")).unwrap().count(), 0);
}
