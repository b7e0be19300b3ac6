//! The command `inferbench`.

fn main() -> std::process::ExitCode {
    inferbench::main()
}
