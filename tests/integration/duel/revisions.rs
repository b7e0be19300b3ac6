//! Duels of revisions, which are built.

use std::fs;
use std::process::Command;

use tempfile::{TempDir, tempdir};

use super::{NOISE, duel, json, stand_in, verdict, workplace};
use crate::support::{Run, Workplace};

fn git(workplace: &Workplace, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.current_dir(workplace.path("")).args(["-c", "user.name=t", "-c", "user.email=t@example.org"]);
    command.args(arguments).finish().with_code(0);
}

/// A git repository in the workplace with one commit for each source of a package that stands in for this one.
fn repository(workplace: &Workplace, sources: &[&str]) {
    git(workplace, &["init", "--quiet", "--initial-branch", "main"]);
    let manifest = "[package]\nname = \"inferbench\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
         [features]\nort = []\ntch = []\ncandle = []\ntract = []\n[workspace]\n";
    workplace.write("Cargo.toml", manifest);
    workplace.write("Cargo.lock", "version = 4\n\n[[package]]\nname = \"inferbench\"\nversion = \"0.1.0\"\n");
    fs::create_dir_all(workplace.path("src")).unwrap();
    for (index, source) in sources.iter().enumerate() {
        workplace.write("src/main.rs", source);
        git(workplace, &["add", "Cargo.toml", "Cargo.lock", "src"]);
        git(workplace, &["commit", "--quiet", "--message", "a revision"]);
        git(workplace, &["tag", &format!("v{index}")]);
    }
}

/// A duel whose worktrees are in a cache folder of its own, outside of the repository.
fn duel_of(workplace: &Workplace, cache: &TempDir, programs: [&str; 2]) -> Command {
    let mut command = duel(workplace, programs, &[]);
    command.env("XDG_CACHE_HOME", cache.path());
    command
}

fn worktrees(cache: &TempDir) -> usize {
    fs::read_dir(cache.path().join("inferbench/worktrees")).unwrap().count()
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
    let (workplace, cache) = (workplace(), tempdir().unwrap());
    repository(&workplace, &[&source(1000), &source(1300)]);
    let slower = duel_of(&workplace, &cache, ["v0", "main"]).finish().with_code(1);
    assert_eq!((verdict(&slower).as_str(), slower.stderr.matches("building ").count()), ("slower", 2));
    let again = duel_of(&workplace, &cache, ["main", "v1"]).finish();
    assert!(!again.stderr.contains("building ") && json(&again)["base"]["commit"].is_string(), "{}", again.stderr);
    let flags = duel_of(&workplace, &cache, ["main", "v1"]).env("RUSTFLAGS", "-C debuginfo=1").finish();
    assert_eq!(flags.stderr.matches("building ").count(), 1, "{}", flags.stderr);
    // Cargo also takes flags from its own files.
    let home = workplace.path("home");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("config.toml"), "[build]\nrustflags = ['-C', 'debuginfo=1']\n").unwrap();
    let flags = duel_of(&workplace, &cache, ["main", "v1"]).env("CARGO_HOME", home).finish();
    assert_eq!(flags.stderr.matches("building ").count(), 1, "{}", flags.stderr);
    // Cargo then builds in another folder, and the executables of before still lie in the usual one.
    let version = Command::new("rustc").arg("-vV").finish().with_code(0).stdout;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let slower = duel_of(&workplace, &cache, ["v0", "main"]).env("CARGO_BUILD_TARGET", host).finish().with_code(1);
    assert_eq!(slower.stderr.matches("building ").count(), 2, "{}", slower.stderr);
    assert_eq!(worktrees(&cache), 0);
    let mut list = Command::new("git");
    let list = list.current_dir(workplace.path("")).args(["worktree", "list"]).finish().with_code(0);
    assert_eq!(list.stdout.lines().count(), 1, "{}", list.stdout);
}

#[test]
fn a_revision_is_built_with_its_own_settings_of_cargo_and_not_with_those_of_the_working_tree() {
    let (workplace, cache) = (workplace(), tempdir().unwrap());
    repository(&workplace, &[&source(1300).replace("1300", "1300 - if cfg!(fast) { 300 } else { 0 }")]);
    fs::create_dir(workplace.path(".cargo")).unwrap();
    workplace.write(".cargo/config.toml", "[build]\nrustflags = ['--cfg', 'fast']\n");
    git(&workplace, &["add", ".cargo"]);
    git(&workplace, &["commit", "--quiet", "--message", "faster"]);
    let mut faster = duel_of(&workplace, &cache, ["v0", "main"]);
    // These would replace the flags of the files, or refuse a flag that only they name.
    for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER"] {
        faster.env_remove(variable);
    }
    let faster = faster.finish().with_code(0);
    assert_eq!(verdict(&faster), "faster", "{}", faster.stderr);
}

#[test]
fn files_of_two_revisions_are_compared_and_their_worktrees_removed() {
    let (workplace, cache) = (workplace(), tempdir().unwrap());
    git(&workplace, &["init", "--quiet"]);
    for (tag, median) in [("v0", 100_000), ("v1", 105_000)] {
        stand_in(&workplace, "program", &format!("median={median}; {NOISE}"));
        git(&workplace, &["add", "program"]);
        git(&workplace, &["commit", "--quiet", "--message", tag]);
        git(&workplace, &["tag", tag]);
    }
    let slower = duel_of(&workplace, &cache, ["v0:program", "v1:program"]).finish().with_code(1);
    assert_eq!(verdict(&slower), "slower");
    let of_one = duel_of(&workplace, &cache, ["v1:program", "v1:program"]).finish();
    assert!(json(&of_one)["cases"][0]["comparison"].is_object(), "{}", of_one.stderr);
    let none = duel_of(&workplace, &cache, ["v0:program", "v1:other"]).finish().with_code(2);
    none.saying(&["the revision v1 has no file other"]);
    assert_eq!(worktrees(&cache), 0);
}

#[test]
fn a_revision_that_is_not_there_or_does_not_build_is_said_with_its_reason() {
    let (workplace, cache) = (workplace(), tempdir().unwrap());
    let none = duel_of(&workplace, &cache, ["main", "main"]).finish().with_code(2);
    none.saying(&["there are no revisions to compare in ", "git says: "]);
    repository(&workplace, &["fn main() { nonsense() }\n"]);
    duel_of(&workplace, &cache, ["main", "v9"]).finish().with_code(2).saying(&["\"v9\" is not a revision of"]);
    let broken = duel_of(&workplace, &cache, ["main", "main"]).finish().with_code(2);
    broken.saying(&["main does not build", "cannot find function `nonsense`"]);
    assert_eq!(worktrees(&cache), 0);
}
