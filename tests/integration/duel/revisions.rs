//! Duels of revisions, which are built.

use std::fs;
use std::process::Command;

use super::{duel, json, verdict, workplace};
use crate::support::{Run, Workplace};

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

/// A program that speaks the protocol of arms, with calls of this median.
fn source(median: u32) -> String {
    const SOURCE: &str = r#"fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let start = format!(
        "{{\"job\":\"{}/0\",\"environment\":{{}},\"processors\":[],\"timeout_seconds\":60}}",
        arguments.get(4).cloned().unwrap_or_default()
    );
    match arguments[2].as_str() {
        "plan" => println!(
            "{{\"protocol\":3,\"cases\":[{{\"id\":\"m/x/1\",\"status\":\"ok\",\"message\":null,\"start\":{start}}}]}}"
        ),
        "time" => {
            println!("arm {{\"ready\":{{\"call_ns\":1000,\"affinities\":{{}}}}}}");
            let median = MEDIAN + std::process::id() % 7;
            for _ in std::io::stdin().lines() {
                println!("arm {{\"slice\":{{\"calls\":10,\"median_ns\":{median},\"mean_ns\":{median}}}}}");
            }
        }
        _ => {}
    }
}
"#;
    SOURCE.replace("MEDIAN", &median.to_string())
}

#[test]
fn revisions_are_built_once_each_and_their_worktrees_removed() {
    let workplace = workplace();
    repository(&workplace, &[&source(1000), &source(1300)]);
    let slower = duel(&workplace, ["v0", "main"], &[]).finish().with_code(1);
    assert_eq!((verdict(&slower).as_str(), slower.stderr.matches("building ").count()), ("slower", 2));
    let again = duel(&workplace, ["main", "v1"], &[]).finish();
    assert!(!again.stderr.contains("building ") && json(&again)["base"]["commit"].is_string(), "{}", again.stderr);
    let flags = duel(&workplace, ["main", "v1"], &[]).env("RUSTFLAGS", "-C debuginfo=1").finish();
    assert_eq!(flags.stderr.matches("building ").count(), 1, "{}", flags.stderr);
    // Cargo then builds in another folder, and the executables of before still lie in the usual one.
    let version = Command::new("rustc").arg("-vV").finish().with_code(0).stdout;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let slower = duel(&workplace, ["v0", "main"], &[]).env("CARGO_BUILD_TARGET", host).finish().with_code(1);
    assert_eq!(slower.stderr.matches("building ").count(), 2, "{}", slower.stderr);
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
    none.saying(&["there are no revisions to compare in ", "git says: "]);
    repository(&workplace, &["fn main() { nonsense() }\n"]);
    duel(&workplace, ["main", "v9"], &[]).finish().with_code(2).saying(&["\"v9\" is not a revision of"]);
    let broken = duel(&workplace, ["main", "main"], &[]).finish().with_code(2);
    broken.saying(&["main does not build", "cannot find function `nonsense`"]);
    assert_eq!(fs::read_dir(workplace.path("target/inferbench/duel/worktrees")).unwrap().count(), 0);
}
