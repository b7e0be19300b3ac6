//! `cargo bench --bench serving` puts `digits` under load, with the words of `inferbench load`.

fn main() -> std::process::ExitCode {
    inferbench::Harness::new().model("digits").load_main()
}
