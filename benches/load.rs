//! Cold starts: from a model's file to its first output, each in a fresh process. `cargo bench --bench load -- --help`
//! says more.

fn main() -> std::process::ExitCode {
    inferbench::harness::load_main()
}
