//! The parts of the action that compares a pull request with its base, beside the duel itself.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::{Run, Workplace, checkout};

#[test]
fn a_comment_that_may_not_be_written_is_a_warning() {
    let workplace = Workplace::new(&[], &["null"], &[1]);
    workplace.write("gh", "#!/bin/sh\necho \"$@\" >>asked\n[ -e allowed ]\n");
    fs::set_permissions(workplace.path("gh"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", workplace.path("").display(), std::env::var("PATH").unwrap());
    let comment = || {
        let mut command = workplace.command(&checkout().join(".github/actions/duel/comment"), &[]);
        command.env("PATH", &path).env("NUMBER", "7").finish().with_code(0).stdout
    };
    // A duel that could not begin has written nothing.
    assert_eq!(comment(), "");
    workplace.write("duel.md", "### inferbench");
    assert!(comment().starts_with("::warning::"));
    workplace.write("allowed", "");
    assert_eq!(comment(), "");
    let asked = fs::read_to_string(workplace.path("asked")).unwrap();
    assert!(asked.lines().count() == 2 && asked.starts_with("pr comment 7 --body-file duel.md "), "{asked}");
}

#[test]
fn the_action_gets_onnx_runtime_for_the_folder_of_the_duel_and_not_for_its_own() {
    let action = fs::read_to_string(checkout().join(".github/actions/duel/action.yml")).unwrap();
    let (_, step) = action.split_once("name: get ONNX Runtime").unwrap();
    let (step, _) = step.split_once("- name: ").unwrap();
    assert!(step.contains("working-directory: ${{ inputs.working-directory }}"), "{step}");
    assert!(step.contains(r#"run: '"$INFERBENCH" setup ort'"#), "{step}");
}
