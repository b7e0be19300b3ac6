//! Load tests, with the command line of `inferbench load`: `cargo bench --bench serving -- digits/ort --rate 300/s --p99 20ms`. Without
//! arguments it is what the table `[load]` of the suite says.

fn main() -> std::process::ExitCode {
    inferbench::cli::serving_main()
}
