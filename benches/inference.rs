//! The main job: every case of the suite, measured by Criterion. `cargo bench --bench inference -- --help` says more.

fn main() -> std::process::ExitCode {
    inferbench::harness::bench_main()
}
