//! Duels of the package's own executable and of stand-ins whose times are known.

mod action;
mod revisions;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::{Finished, Run, Workplace, wait_for};

fn workplace() -> Workplace {
    Workplace::new(&["digits"], &["null"], &[1])
}

/// An executable that speaks the protocol of arms: `shell` sets `median` and may set `status`, `call` (the nanoseconds that a call
/// is expected to take) and `calls` (those of each call of a slice); `each` runs before each slice, of which `line` tells the length.
fn stand_in(workplace: &Workplace, name: &str, shell: &str) -> PathBuf {
    stand_in_with(workplace, name, shell, "")
}

fn stand_in_with(workplace: &Workplace, name: &str, shell: &str, each: &str) -> PathBuf {
    let start = r#"{\"job\":\"$4/0.json\",\"environment\":{},\"processors\":[],\"timeout_seconds\":60}"#;
    let case = r#"{\"id\":\"m/x/1\",\"status\":\"$status\",\"message\":null,\"start\":$start}"#;
    let slice = r#"{\"slice\":{\"calls\":10,\"median_ns\":$median,\"mean_ns\":$median,\"calls_ns\":[$calls]}}"#;
    let script = format!(
        "#!/bin/sh\nmedian=100000\nstatus=ok\ncall=1000\ncalls=\n{shell}\ncase \"$2\" in\n\
         plan) start=\"{start}\"; [ $status = ok ] || start=null\n\
         echo \"{{\\\"protocol\\\":3,\\\"cases\\\":[{case}]}}\" ;;\n\
         time) echo \"arm {{\\\"ready\\\":{{\\\"call_ns\\\":$call,\\\"affinities\\\":{{}}}}}}\"\n\
         while read -r line; do\n{each}\necho a library says something\necho \"arm {slice}\"\ndone ;;\nesac\n"
    );
    workplace.write(name, script);
    let path = workplace.path(name);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn duel(workplace: &Workplace, programs: [&str; 2], arguments: &[&str]) -> Command {
    let mut command = workplace.inferbench(&["duel"]);
    command.args(programs).args(["--generations", "12", "--slice", "2", "--format", "json"]).args(arguments);
    command
}

fn json(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {}", finished.stdout))
}

fn verdict(finished: &Finished) -> String {
    json(finished)["cases"][0]["comparison"]["verdict"].as_str().unwrap_or("none").to_owned()
}

/// A little noise of a process, so that no two medians need to be equal.
const NOISE: &str = "median=$((median + $$ % 7 * 100))";

#[test]
fn a_slow_down_of_the_own_executable_is_found() {
    let workplace = workplace();
    let measured = |_: usize| duel(&workplace, [".", "."], &["--null-slowdown", "3000%"]).finish();
    // The null control of a busy machine moves by chance in some duels, which have no verdict then.
    let is_sound = |it: &Finished| json(it)["cases"][0]["comparison"]["is_null_changed"] != true;
    let slowed = (0..3).map(measured).find(is_sound).expect("the null control moves three times").with_code(1);
    assert_eq!(verdict(&slowed), "slower");
    let slowed = slowed.saying(&[
        "digits/null-cpu-f32/1: about ± ",
        "digits/null-cpu-f32/1: +",
        " after 12 of at most 12 generations: slower",
    ]);
    // Nobody watches: one line when the case begins, and one for each look.
    assert_eq!(slowed.stderr.matches("digits/null-cpu-f32/1").count(), 2, "{}", slowed.stderr);
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
    let tolerated = duel(&workplace, ["./base", "./slow"], &["--tolerance", "8%"]).finish().with_code(0);
    assert_eq!(verdict(&tolerated), "same");
    let faster = duel(&workplace, ["./slow", "./base"], &["--seed", "5"]).finish().with_code(0);
    assert_eq!((verdict(&faster).as_str(), &json(&faster)["seed"]), ("faster", &Value::from(5)));
    let mut markdown = workplace.inferbench(&["duel", "./base", "./slow", "--minutes", "0.1", "--format", "markdown"]);
    let markdown = markdown.finish().with_code(1).stdout;
    assert!(markdown.starts_with("### a regression\n") && markdown.contains("| slower |"), "{markdown}");
}

#[test]
fn a_program_that_is_replaced_during_the_duel_leads_to_no_verdict() {
    let workplace = workplace();
    stand_in(&workplace, "base", "");
    stand_in(&workplace, "replaced", "echo '#' >>\"$0\"");
    let found = duel(&workplace, ["./base", "./replaced"], &[]).finish().with_code(2);
    found.saying(&["replaced was replaced during the duel"]);
}

#[test]
fn a_duel_with_an_open_case_ends_with_4_unless_that_is_allowed() {
    let workplace = workplace();
    stand_in(&workplace, "base", "");
    // From −6 to +6 %, one after the other.
    let scatter = "echo >> runs; median=$((94000 + $(wc -l < runs) * 5 % 12 * 1100))";
    stand_in(&workplace, "open", scatter);
    let of = |arguments: &[&str]| {
        let mut duel = workplace.inferbench(&["duel", "./base", "./base", "./open", "--generations", "12"]);
        duel.args(arguments).finish()
    };
    let undecided = of(&["--format", "json"]).with_code(4);
    let found = json(&undecided);
    let verdicts = [0, 1].map(|case| found["cases"][case]["comparison"]["verdict"].as_str().unwrap());
    assert_eq!(verdicts, ["same", "cannot-say"]);
    assert!(found["minutes_needed"].as_f64() > Some(0.0), "{found}");
    let table = of(&[]).with_code(4).stdout;
    assert!(table.contains("m/x/1 against ./open: open: a slow-down of more than 1 %"), "{table}");
    assert!(
        table.contains("the same command with `--minutes ") && table.ends_with("undecided: 1 of 2 cases open\n"),
        "{table}"
    );
    of(&["--allow-undecided"]).with_code(0);
    let mut alone = workplace.inferbench(&["duel", "./base", "./open", "--generations", "12", "--allow-undecided"]);
    alone.finish().with_code(4);
    // A case that is slower for sure is a regression beside one that is open.
    stand_in(&workplace, "slow", "median=105000");
    let mut mixed = workplace.inferbench(&["duel", "./base", "./open", "./slow", "--generations", "12"]);
    let mixed = mixed.finish().with_code(1).stdout;
    assert!(mixed.ends_with("a regression: 1 of 2 cases open\n"), "{mixed}");
}

#[test]
fn a_slow_down_is_excluded_where_equality_is_not_shown() {
    let workplace = workplace();
    stand_in(&workplace, "base", "");
    // From −2.8 to +0.5 %.
    stand_in(&workplace, "other", "echo >> runs; median=$((100500 - $(wc -l < runs) * 5 % 12 * 300))");
    let excluded = duel(&workplace, ["./base", "./other"], &[]).finish().with_code(0);
    assert_eq!(verdict(&excluded), "not-slower");
}

#[test]
fn a_change_that_the_layout_of_code_may_explain_is_named_and_can_be_excluded() {
    let workplace = workplace();
    stand_in(&workplace, "base", "");
    stand_in(&workplace, "wrapper", "echo >> runs; median=$((101100 + $(wc -l < runs) % 4 * 10 - 200))");
    let of = |arguments: &[&str]| {
        let mut duel =
            workplace.inferbench(&["duel", "./base", "./wrapper", "--generations", "12", "--tolerance", "0.5%"]);
        duel.args(arguments).finish()
    };
    let open = of(&[]).with_code(4).stdout;
    assert!(open.contains("can come from other addresses of the same machine code"), "{open}");
    let slower = of(&["--same-code"]).with_code(1).stdout;
    assert!(slower.contains("slower"), "{slower}");
}

#[test]
fn slices_of_long_calls_have_few_of_them_after_those_that_the_pilot_found_to_be_slow() {
    let workplace = workplace();
    let long = |calls: &str| format!("call=2000000; median=2000000; calls={calls}");
    let told = |arguments: &[&str]| {
        let _ = fs::remove_file(workplace.path("told"));
        let mut duel = workplace.inferbench(&["duel", "./base", "./base", "--generations", "12"]);
        let finished = duel.args(arguments).finish().with_code(0);
        let told = fs::read_to_string(workplace.path("told")).unwrap();
        (told.lines().next().unwrap().to_owned(), told.lines().last().unwrap().to_owned(), finished.stderr)
    };
    let first_is_slow = long("2600000,2000000,2010000,2000000,1990000,2000000");
    stand_in_with(&workplace, "base", &first_is_slow, "echo $line >> told");
    let (pilot, planned, said) = told(&[]);
    assert_eq!([pilot.as_str(), planned.as_str()], ["slice 0 0 6", "slice 0 1 1"]);
    assert!(said.contains("slices of 1 call after 1 that fill the caches per arm"), "{said}");
    let (_, planned, _) = told(&["--slice", "8"]);
    assert_eq!(planned, "slice 0 1 3");
    stand_in_with(&workplace, "base", &long("2000000,2000000,2010000,2000000,1990000,2000000"), "echo $line >> told");
    assert_eq!(told(&[]).1, "slice 0 0 2");
}

#[test]
fn several_candidates_are_measured_beside_each_other_and_one_that_is_lost_takes_nothing_from_the_others() {
    let workplace = workplace();
    stand_in(&workplace, "base", NOISE);
    stand_in(&workplace, "slow", &format!("median=105000; {NOISE}"));
    stand_in(&workplace, "wrong", "status=wrong-output");
    let mut duel = workplace.inferbench(&["duel", "./base", "./wrong", "./slow", "./base", "--generations", "12"]);
    let found = duel.args(["--slice", "2", "--format", "json"]).finish().with_code(1);
    let found = json(&found);
    let verdicts: Vec<&str> = found["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| case["comparison"]["verdict"].as_str().unwrap_or("-"))
        .collect();
    assert_eq!(verdicts, ["-", "slower", "same"]);
    assert_eq!(found["cases"][0]["loss"]["status"], "wrong-output");
    let mut table =
        workplace.inferbench(&["duel", "./base", "./slow", "./base", "--generations", "12", "--slice", "2"]);
    let table = table.finish().with_code(1).stdout;
    assert!(table.contains("against") && table.contains("./slow"), "{table}");
}

#[test]
fn a_large_change_ends_a_duel_at_its_first_look() {
    let workplace = workplace();
    // The pilot's generations scatter, so that many are planned.
    let scatter = "median=$((median + $$ * 7919 % 50 * 100))";
    stand_in(&workplace, "base", scatter);
    stand_in(&workplace, "slow", &format!("median=150000; {scatter}"));
    let short = |candidate: &str| {
        let mut duel = workplace.inferbench(&["duel", "./base", candidate, "--minutes", "0.6", "--slice", "2"]);
        let finished = duel.args(["--format", "json"]).finish();
        let found = json(&finished);
        let case = &found["cases"][0];
        let plan = case["plan"]["generations"].as_u64().unwrap();
        (verdict(&finished), case["comparison"]["generations"].as_u64().unwrap(), plan)
    };
    let (found, generations, planned) = short("./slow");
    assert_eq!((found.as_str(), generations), ("slower", 12));
    assert!(planned > 20, "{planned}");
}

#[test]
fn a_null_control_that_moves_is_said_instead_of_a_verdict() {
    let workplace = workplace();
    stand_in(&workplace, "haunted", &format!("case $0 in */b/inferbench) median=110000 ;; esac; {NOISE}"));
    let unstable = duel(&workplace, ["./haunted", "./haunted"], &[]).finish().with_code(4);
    assert_eq!(verdict(&unstable), "cannot-say");
    assert_eq!(json(&unstable)["cases"][0]["comparison"]["is_null_changed"], true);
}

#[test]
fn a_slow_down_of_some_processes_is_not_called_the_same() {
    let workplace = workplace();
    stand_in(&workplace, "base", "");
    // Each third process is a fifth slower.
    stand_in(&workplace, "moody", "echo >> moods; [ $(($(wc -l < moods) % 3)) = 0 ] && median=120000");
    let mut moody = workplace.inferbench(&["duel", "./base", "./moody", "--generations", "30", "--format", "json"]);
    let moody = moody.finish();
    let found = verdict(&moody);
    assert!(json(&moody)["cases"][0]["loss"].is_null(), "{}", moody.stdout);
    assert!(!["same", "none"].contains(&found.as_str()), "{}", moody.stdout);
}

#[test]
fn a_wrong_output_is_the_candidates_loss_and_never_timed() {
    let workplace = workplace();
    stand_in(&workplace, "base", "");
    stand_in(&workplace, "wrong", "status=wrong-output");
    let lost = duel(&workplace, ["./base", "./wrong"], &[]).finish().with_code(1);
    assert_eq!(json(&lost)["cases"][0]["loss"]["status"], "wrong-output");
    lost.saying(&["m/x/1: wrong-output in ./wrong"]);
    duel(&workplace, ["./wrong", "./base"], &[]).finish().with_code(4);
    stand_in(&workplace, "absent", "status=unavailable");
    duel(&workplace, ["./absent", "./base"], &[]).finish().with_code(3).saying(&["left out: m/x/1: unavailable"]);
}

#[test]
fn a_lost_generation_is_repeated_once() {
    let workplace = workplace();
    stand_in(&workplace, "base", "");
    let dying = |condition: &str| format!("if {condition}; then echo oh >&2; kill -9 $$; fi");
    stand_in_with(&workplace, "unlucky", "", &dying("mkdir once 2>/dev/null"));
    let repeated = duel(&workplace, ["./base", "./unlucky"], &[]).finish().with_code(0);
    assert_eq!(json(&repeated)["cases"][0]["comparison"]["generations"], 12);
    repeated.saying(&["m/x/1: a generation is repeated: its process ended (signal: 9 (SIGKILL))"]);
    stand_in_with(&workplace, "dying", "", &dying("true"));
    duel(&workplace, ["./dying", "./base"], &[])
        .finish()
        .with_code(4)
        .saying(&["lost: m/x/1: failed in ./dying: its process ended"]);
    duel(&workplace, ["./base", "./dying"], &[]).finish().with_code(1);
}

#[test]
fn idle_arms_are_stopped_while_another_one_measures() {
    let workplace = workplace();
    // Counts the processes of arms that do not stand still while a slice is measured, but for itself.
    let count = "for stat in /proc/[0-9]*/stat; do\n\
         read -r pid name state rest < $stat 2>/dev/null && [ \"$name\" = '(inferbench)' ] && [ $pid != $$ ] \
         && tr '\\0' ' ' < /proc/$pid/cmdline | grep -q \"$PWD/.*/inferbench arm time\" && echo $state >> states\ndone";
    stand_in_with(&workplace, "base", "", count);
    duel(&workplace, ["./base", "./base"], &[]).finish().with_code(0);
    let states = fs::read_to_string(workplace.path("states")).unwrap_or_default();
    assert!(states.lines().count() > 100 && states.lines().all(|state| state == "T"), "{states}");
}

#[cfg(target_os = "linux")]
#[test]
fn threads_of_an_arm_run_on_its_processors_and_are_read_back() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let time = |threads: &str, processors: &str, load_on: Option<&str>| -> Vec<Value> {
        let mut plan = workplace.inferbench(&["arm", "plan", "--threads", threads, "--processors", processors]);
        let plan = plan.arg("--folder").arg(workplace.path("jobs")).finish().with_code(0);
        let start = &json(&plan)["cases"][0]["start"];
        let warm_up = if load_on.is_some() { "warm-up\n" } else { "" };
        workplace.write("asked", format!("{warm_up}slice 1000000 0 1\nslice 0 1 2\n"));
        let mut arm = workplace.inferbench(&["arm", "time", start["job"].as_str().unwrap()]);
        arm.args(load_on.map(|processors| format!("--load-on={processors}")));
        for (name, value) in start["environment"].as_object().unwrap() {
            arm.env(name, value.as_str().unwrap());
        }
        let arm = arm.stdin(fs::File::open(workplace.path("asked")).unwrap()).output().unwrap();
        let answers = String::from_utf8(arm.stdout).unwrap();
        answers.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("arm ")?).ok()).collect()
    };
    let affinities = |answers: &[Value]| answers[0]["ready"]["affinities"].as_object().unwrap().clone();
    if std::thread::available_parallelism().unwrap().get() > 1 {
        let found = affinities(&time("2", "1,0", None));
        assert!(found["0"] == 1 && found["1"] == 1, "{found:?}");
        let loaded_elsewhere = time("1", "0", Some("0001"));
        assert_eq!(loaded_elsewhere[0], "loaded");
        assert!(affinities(&loaded_elsewhere[1..]).keys().eq(["0"]), "{loaded_elsewhere:?}");
    }
    let answers = time("1", "0", None);
    assert!(affinities(&answers).keys().eq(["0"]), "{answers:?}");
    assert_eq!(answers.len(), 3);
    assert!(answers[1]["slice"]["calls"].as_u64() > Some(0), "{answers:?}");
    assert_eq!(answers[2]["slice"]["calls"], 2, "{answers:?}");
    assert_eq!(answers[2]["slice"]["calls_ns"].as_array().map(Vec::len), Some(2), "{answers:?}");
}

#[test]
fn a_model_is_not_compared_with_one_of_other_inputs() {
    let workplace = workplace();
    for model in ["digits", "tenn_eeg"] {
        let suite = format!("models = [{{ name = {model:?} }}]\nbackends = ['null']\nbatch_sizes = [1]\n");
        workplace.write(&format!("{model}.toml"), suite);
    }
    let mut command = duel(&workplace, ["digits.toml", "tenn_eeg.toml"], &[]);
    let finished = command.finish().with_code(3);
    finished.saying(&["left out: digits/null-cpu-f32/1", "in the base", "in the candidate"]);
}

#[test]
fn a_profile_that_cannot_be_made_leaves_the_verdict() {
    let workplace = workplace();
    stand_in(&workplace, "base", NOISE);
    stand_in(&workplace, "slow", &format!("median=105000; {NOISE}"));
    let slower = duel(&workplace, ["./base", "./slow"], &["--profile"]).finish().with_code(1);
    assert_eq!(verdict(&slower), "slower");
    slower.saying(&["no profile: "]);
}

#[test]
fn bad_programs_and_too_few_generations_are_refused() {
    let workplace = workplace();
    stand_in(&workplace, "base", "");
    stand_in(&workplace, "old", "echo \"error: unrecognized subcommand 'arm'\" >&2; exit 2");
    let old = duel(&workplace, ["./base", "./old"], &[]).finish().with_code(2);
    old.saying(&["./old has no `inferbench arm`"]);
    stand_in(&workplace, "newer", "[ $2 = plan ] && { echo '{\"protocol\":4}'; exit; }");
    duel(&workplace, ["./base", "./newer"], &[]).finish().with_code(2).saying(&["version 4 of the protocol"]);
    workplace.write("notes", "not an executable");
    duel(&workplace, ["./base", "notes"], &[]).finish().with_code(2).saying(&["neither an executable nor a suite"]);
    let few = workplace.inferbench(&["duel", "./base", "./base", "--generations", "7"]).finish().with_code(2);
    few.saying(&["7 is not in 12..=1000"]);
    let unknown = duel(&workplace, [".", "."], &["--model", "nothing"]).finish().with_code(2);
    unknown.saying(&["no model \"nothing\""]);
    duel(&workplace, ["./base", "./absent"], &[]).finish().with_code(2);
}

#[test]
fn a_duel_that_was_stopped_goes_on_where_it_was() {
    let workplace = workplace();
    stand_in_with(&workplace, "base", "", "sleep 0.03");
    let duels = workplace.path("target/inferbench/duel");
    let measured = || {
        let folder = fs::read_dir(&duels).ok()?.flatten().map(|entry| entry.path().join("generations.jsonl"));
        let path = folder.into_iter().find(|path| path.is_file())?;
        Some(fs::read_to_string(path).ok()?.lines().filter(|line| !line.is_empty()).count())
    };
    let programs = ["./base", "./base"];
    let refused = duel(&workplace, programs, &["--resume"]).finish().with_code(2);
    refused.saying(&["there is nothing to resume"]);

    let mut running = duel(&workplace, programs, &[]).start(&workplace.path("log.txt"));
    wait_for("two generations", || measured().filter(|generations| *generations >= 2));
    running.interrupt();
    assert_eq!(running.wait().code(), Some(130));
    assert!(fs::read_to_string(workplace.path("log.txt")).unwrap().contains("of 12 generations are kept"));

    let before = measured().unwrap();
    let mut running = duel(&workplace, programs, &["--resume"]).start(&workplace.path("log.txt"));
    wait_for("one generation more", || measured().filter(|generations| *generations > before));
    // Its arms are not told, and answer more often than they are waited for.
    running.terminate();
    assert_eq!(running.wait().code(), Some(130));

    let before = measured().unwrap();
    let mut running = duel(&workplace, programs, &["--resume"]).start(&workplace.path("log.txt"));
    wait_for("one generation more", || measured().filter(|generations| *generations > before));
    running.kill();
    running.wait();

    let other = duel(&workplace, programs, &["--resume", "--tolerance", "2%"]).finish().with_code(2);
    other.saying(&["there is nothing to resume"]);
    let resumed = duel(&workplace, programs, &["--resume"]).finish().with_code(0);
    let generations = json(&resumed)["cases"][0]["comparison"]["generations"].as_u64();
    assert_eq!((generations, measured()), (Some(12), Some(12)));
    assert!(resumed.stderr.contains("resuming duel "), "{}", resumed.stderr);
}
