//! The action that compares a pull request with its base.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::{Run, Workplace, checkout};

#[test]
fn a_comment_of_the_duel_is_replaced_and_no_other_and_one_that_may_not_be_written_is_a_warning() {
    let workplace = Workplace::new(&[], &["null"], &[1]);
    let answers = "case $* in *--jq*) cat listed;; *) cat >written; [ -e allowed ];; esac";
    workplace.write("gh", format!("#!/bin/sh\necho \"$@\" >>asked\n{answers}\n"));
    workplace.write("listed", "");
    fs::set_permissions(workplace.path("gh"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", workplace.path("").display(), std::env::var("PATH").unwrap());
    let comment = || {
        let mut command = workplace.command(&checkout().join(".github/actions/duel/comment"), &[]);
        command.env("PATH", &path).env("NUMBER", "7").env("GITHUB_REPOSITORY", "my/net");
        command.finish().with_code(0).stdout
    };
    let read = |name: &str| fs::read_to_string(workplace.path(name)).unwrap();
    // A duel that could not begin has written nothing.
    assert_eq!(comment(), "");
    workplace.write("duel.md", "### inferbench");
    assert!(comment().starts_with("::warning::"));
    workplace.write("allowed", "");
    assert_eq!(comment(), "");
    let written = read("written");
    let (mark, text) = written.split_once('\n').unwrap();
    assert!(mark.starts_with("<!-- inferbench duel ") && text == "### inferbench\n", "{written}");
    let asked = read("asked");
    assert!(asked.ends_with("--method POST repos/my/net/issues/7/comments --field body=@-\n"), "{asked}");
    assert!(asked.contains(&format!("startswith(\"{mark}\")")), "{asked}");
    // The newest of its own comments, whoever has written one after it.
    workplace.write("listed", "41\n42\n");
    assert_eq!(comment(), "");
    let asked = read("asked");
    assert!(asked.ends_with("--method PATCH repos/my/net/issues/comments/42 --field body=@-\n"), "{asked}");
    // A verdict on other commits does not stay.
    fs::remove_file(workplace.path("duel.md")).unwrap();
    assert_eq!(comment(), "");
    assert!(read("written").starts_with(&format!("{mark}\n### inferbench: no result")), "{}", read("written"));
}

#[test]
fn each_duel_of_a_workflow_has_its_own_comment_also_after_the_next_push() {
    let workplace = Workplace::new(&[], &["null"], &[1]);
    workplace.write("gh", "#!/bin/sh\ncase $* in *--jq*) ;; *) cat >written;; esac\n");
    workplace.write("duel.md", "### inferbench");
    fs::set_permissions(workplace.path("gh"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", workplace.path("").display(), std::env::var("PATH").unwrap());
    let written = |duel: &str, base: &str, head: &str| {
        let mut command = workplace.command(&checkout().join(".github/actions/duel/comment"), &[]);
        command.env("PATH", &path).env("NUMBER", "7").env("GITHUB_REPOSITORY", "my/net");
        command.env("DUEL", duel).env("BASE", base).env("HEAD", head).finish().with_code(0);
        fs::read_to_string(workplace.path("written")).unwrap()
    };
    assert_ne!(written("{\"os\": \"one\"}", "HEAD^1", "HEAD"), written("{\"os\": \"two\"}", "HEAD^1", "HEAD"));
    assert_ne!(written("", "1:one.onnx", "2:one.onnx"), written("", "1:two.onnx", "2:two.onnx"));
    assert_eq!(written("", "1:one.onnx", "2:one.onnx"), written("", "3:one.onnx", "4:one.onnx"));
    let action = fs::read_to_string(checkout().join(".github/actions/duel/action.yml")).unwrap();
    let line = action.lines().find(|line| line.contains("DUEL: ")).unwrap();
    assert!(line.ends_with("${{ toJSON(matrix) }}"), "{line}");
}

#[test]
fn the_action_gets_onnx_runtime_for_the_folder_of_the_duel_and_not_for_its_own() {
    let action = fs::read_to_string(checkout().join(".github/actions/duel/action.yml")).unwrap();
    let (_, step) = action.split_once("name: get ONNX Runtime").unwrap();
    let (step, _) = step.split_once("- name: ").unwrap();
    assert!(step.contains("working-directory: ${{ inputs.working-directory }}"), "{step}");
    assert!(step.contains(r#"run: '"$INFERBENCH" setup ort'"#), "{step}");
}

#[test]
fn the_action_finds_what_it_has_built_whatever_target_folder_the_workflow_has() {
    let action = fs::read_to_string(checkout().join(".github/actions/duel/action.yml")).unwrap();
    let build = action.lines().find(|line| line.contains("cargo build")).unwrap();
    assert!(build.ends_with(" --target-dir target"), "{build}");
    assert!(action.contains("INFERBENCH=$PWD/target/release/inferbench"), "{action}");
}

#[cfg(feature = "tract")]
#[test]
fn the_action_compares_two_files_of_a_model() {
    let workplace = Workplace::new(&["digits"], &["null"], &[1]);
    for name in ["one.onnx", "two.onnx"] {
        fs::copy(checkout().join("tests/data/models/two_inputs.onnx"), workplace.path(name)).unwrap();
    }
    let action = |head: &str| {
        let mut command = workplace.command(&checkout().join(".github/actions/duel/duel"), &[]);
        command.env("INFERBENCH", env!("CARGO_BIN_EXE_inferbench")).env("BASE", "one.onnx").env("HEAD", head);
        command.env("ARGUMENTS", "--backend tract --threads 1 --generations 12").env("TOLERANCE", "20%");
        command.env("GITHUB_OUTPUT", workplace.path("output")).env("GITHUB_STEP_SUMMARY", workplace.path("summary"));
        command.finish()
    };
    let finished = action("two.onnx").with_code(0);
    assert!(finished.stdout.contains("one/tract-cpu-f32/"), "{}", finished.stdout);
    let read = |name: &str| fs::read_to_string(workplace.path(name)).unwrap();
    assert!(["exit-code=0\n", "exit-code=4\n"].contains(&read("output").as_str()), "{}", read("output"));
    let summary = read("summary");
    assert!(summary.starts_with("### inferbench: ") && summary.contains("against two.onnx"), "{summary}");
    action("three.onnx").with_code(2).saying(&["there is no file three.onnx"]);
}
