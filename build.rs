//! Lets every executable of the package find libtorch without an environment variable.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Set by torch-sys, which is a direct dependency for this reason only.
    if let Ok(folder) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
