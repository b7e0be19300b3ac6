//! Lets every executable of the package find libtorch and DuckDB without an environment variable, and know its compiler.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Set by torch-sys, which is a direct dependency for this reason only.
    if let Ok(folder) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
        // Nothing refers to the CUDA part by name: the linker would leave it out without a word, and no GPU be found.
        for part in ["torch_cuda", "torch_hip"] {
            if std::path::Path::new(&folder).join(format!("lib{part}.so")).exists() {
                println!("cargo:rustc-link-arg=-Wl,--push-state,--no-as-needed,-l{part},--pop-state");
            }
        }
    }
    let has = |feature: &str| std::env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    println!("cargo:rerun-if-env-changed=DUCKDB_LIB_DIR");
    if has("DUCKDB") && !has("DUCKDB_BUNDLED") {
        let folder = std::env::var("DUCKDB_LIB_DIR").unwrap_or_default();
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
        println!("cargo:rerun-if-changed={folder}");
        if !std::path::Path::new(&folder).is_dir() {
            println!("cargo::error=the feature duckdb needs DuckDB in {folder:?}; get it with `scripts/setup duckdb`");
        }
    }
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    println!("cargo:rustc-env=INFERBENCH_RUSTC={}", String::from_utf8_lossy(&version).trim());
}
