//! Pythons with PyTorch: where one is found, two of them beside each other, and duels of environments and of forms.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use inferbench::definition::Status;
use serde_json::Value;

use crate::support::{Finished, Run, Workplace};
use crate::workers::{environment, has_environment};

/// A second environment in a workplace, with the packages of the first.
fn second_environment(workplace: &Workplace) -> PathBuf {
    let own = environment("torch");
    let folder = workplace.path("second");
    Command::new(own.join("bin/python"))
        .args(["-m", "venv", "--without-pip", "second"])
        .current_dir(workplace.path(""))
        .finish()
        .with_code(0);
    let packages = |folder: &Path| {
        let mut versions = std::fs::read_dir(folder.join("lib")).unwrap().flatten().map(|entry| entry.path());
        versions.find(|path| path.join("site-packages").is_dir()).unwrap().join("site-packages")
    };
    let target = packages(&folder);
    for package in std::fs::read_dir(packages(&own)).unwrap().flatten() {
        symlink(package.path(), target.join(package.file_name())).unwrap();
    }
    folder
}

#[test]
fn pytorch_is_that_of_a_variable_or_of_the_active_environment() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["torch"], &[1]);
    let second = second_environment(&workplace);
    let own = environment("torch");
    let python = |folder: &Path| folder.join("bin/python").display().to_string();
    let run = |variables: &[(&str, &str)]| {
        let mut command = workplace.inferbench(&["run", "--noplot"]);
        // Nothing is installed by `inferbench setup`.
        command.env("XDG_CACHE_HOME", workplace.path("")).env_remove("INFERBENCH_ENVIRONMENT");
        command.envs(variables.iter().copied()).finish().with_code(0);
        let record = workplace.record("digits/torch-cpu-f32/1");
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{:?}", record.message);
        record.library_path.unwrap()
    };
    let found = run(&[("VIRTUAL_ENV", second.to_str().unwrap())]);
    assert!(found.starts_with(second.to_str().unwrap()), "{found}");
    // The variable comes first.
    let found = run(&[("VIRTUAL_ENV", second.to_str().unwrap()), ("INFERBENCH_TORCH_PYTHON", &python(&own))]);
    assert_eq!(found, python(&own));
}

/// What a duel of two programs finds, which are the first two arguments. The null control of a busy machine moves by chance in some
/// duels, which have no verdict then.
pub fn duel(workplace: &Workplace, arguments: &[&str]) -> Value {
    let found = |_: usize| -> Value {
        let arguments = [&["duel"], arguments, &["--generations", "12", "--format", "json"]].concat();
        let Finished { stdout, stderr, .. } = workplace.inferbench(&arguments).finish();
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"))
    };
    let is_sound = |it: &Value| it["cases"][0]["comparison"]["is_null_changed"] != true;
    (0..3).map(found).find(is_sound).expect("the null control moves three times")
}

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn two_environments_are_two_backends_and_the_programs_of_a_duel() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["torch"], &[1]);
    let second = second_environment(&workplace);
    let [own, second] = [environment("torch"), second].map(|folder| folder.to_str().unwrap().to_owned());
    workplace.inferbench(&["run", "--noplot", "--backend", "torch,torch@second"]).finish().with_code(0);
    for (backend, folder) in [("torch", &own), ("torch@second", &second)] {
        let record = workplace.record(&format!("digits/{backend}-cpu-f32/1"));
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{:?}", record.message);
        assert!(record.library_path.as_ref().is_some_and(|path| path.starts_with(folder)), "{:?}", record.library_path);
    }
    let found = duel(&workplace, &[&own, &second, "--backend", "torch"]);
    let comparison = &found["cases"][0]["comparison"];
    // The same packages.
    assert!(comparison["verdict"] != "slower" && comparison["verdict"].is_string(), "{found}");
}

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn two_forms_of_a_module_are_the_programs_of_a_duel() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits"], &[], &[1]);
    let suite = std::fs::read_to_string(workplace.path("models/suites/quick.toml")).unwrap();
    for (name, backend) in [("eager", "torch"), ("compiled", "torch-compile")] {
        let backends = format!("backends = [{backend:?}]");
        workplace.write(&format!("{name}.toml"), suite.replace("backends = []", &backends));
    }
    let found = duel(&workplace, &["eager.toml", "compiled.toml"]);
    assert!(found["cases"][0]["comparison"]["verdict"].is_string(), "{found}");
}
