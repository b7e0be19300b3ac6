//! `scripts/bench`, with other programs in place of Cargo and inferbench.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::{Run, Workplace, checkout};

#[test]
fn a_bench_shows_what_it_has_measured_and_no_earlier_run() {
    let workplace = Workplace::new(&[], &["null"], &[1]);
    for folder in ["bin", "scripts", "target/release"] {
        fs::create_dir_all(workplace.path(folder)).unwrap();
    }
    fs::copy(checkout().join("scripts/bench"), workplace.path("scripts/bench")).unwrap();
    let program = r#"[ "$1" != convert ] || { echo "target-reports/$RUN/results.csv"; exit "$LEFT"; }; echo table"#;
    for (name, text) in [
        ("scripts/setup", ""),
        ("bin/c++", ""),
        ("bin/cargo", r#"[ "$1" != bench ] || exit "$MEASURED""#),
        ("target/release/inferbench", program),
    ] {
        workplace.write(name, format!("#!/bin/sh\n{text}\n"));
        fs::set_permissions(workplace.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", workplace.path("bin").display(), std::env::var("PATH").unwrap());
    let bench = |run: &str, measured: &str, converted: &str| {
        let mut command = workplace.command(&workplace.path("scripts/bench"), &["digits"]);
        command.env("PATH", &path).env("CARGO_TARGET_DIR", workplace.path("target"));
        command.env("RUN", run).env("MEASURED", measured).env("LEFT", converted).finish()
    };
    let [earlier, new] = ["20200101T120000Z", "29990101T120000Z"];
    // A filter that matches no case, and a wrong flag.
    let without = bench(earlier, "0", "0").with_code(3).saying(&["nothing was measured"]);
    assert_eq!(without.stdout, "");
    assert_eq!(bench(earlier, "2", "0").with_code(2).stdout, "");
    assert!(bench(new, "0", "0").with_code(0).stdout.starts_with("table\n"));
    // No case has figures, because all outputs are wrong.
    assert!(bench(new, "1", "3").with_code(1).stdout.starts_with("table\n"));
}
