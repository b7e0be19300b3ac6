//! Lets every executable of the package find libtorch and DuckDB without an environment variable, and know its compiler; makes
//! the types of the messages of ONNX files and of gRPC; puts the files that the program reads into the library.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rustc-check-cfg=cfg(libtorch_at_run_time, rooms, has_tests, fuzzing, openvino_tasks)");
    // The published package has no tests, and so nothing to which the rooms must be public.
    if Path::new("tests/integration").is_dir() {
        println!("cargo::rustc-cfg=has_tests");
    }
    // Set by torch-sys, which is a direct dependency for this reason only.
    if let Ok(folder) = env::var("DEP_TCH_LIBTORCH_LIB") {
        find_libtorch(Path::new(&folder));
    }
    let has = |feature: &str| env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    println!("cargo:rerun-if-env-changed=DUCKDB_LIB_DIR");
    if has("DUCKDB") && !has("DUCKDB_BUNDLED") {
        let folder = env::var("DUCKDB_LIB_DIR").unwrap_or_default();
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
        println!("cargo:rerun-if-changed={folder}");
        if !Path::new(&folder).is_dir() {
            println!("cargo::error=the feature duckdb needs DuckDB in {folder:?}; get it with `scripts/setup duckdb`");
        }
    }
    if has("OPENVINO") && env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        match openvino_tasks() {
            Ok(()) => println!("cargo::rustc-cfg=openvino_tasks"),
            Err(why) => println!("cargo::warning=OpenVINO's operators are profiled in whole microseconds: {why}"),
        }
    }
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    println!("cargo:rustc-env=INFERBENCH_RUSTC={}", String::from_utf8_lossy(&version).trim());
    if let Err(error) = program_files() {
        println!("cargo::error=the files of the program: {error}");
    }
    let mut config = prost_build::Config::new();
    // A package that uses this one has no `.cargo/config.toml` that names one, and Windows cannot run the script that is named there.
    let told = env::var_os("PROTOC").map(PathBuf::from).filter(|it| cfg!(unix) || !it.ends_with("scripts/protoc"));
    if told.is_none()
        && let Some(protoc) = vendored_protoc()
    {
        config.protoc_executable(protoc);
    }
    let files = ["src/onnx/onnx.proto", "src/remote/protocol/grpc/inference.proto"];
    files.iter().for_each(|file| println!("cargo:rerun-if-changed={file}"));
    if let Err(error) = config.bytes([".onnx"]).compile_protos(&files, &["src/onnx", "src/remote/protocol/grpc"]) {
        println!("cargo::error=the types of messages: {error}");
    }
}

/// What the program reads at run time: folders with all that is in them, and files. Users put files of their own beside those of
/// the network that has trained weights.
const PROGRAM_FILES: [&str; 15] = [
    "models/suites",
    "models/zoo",
    "models/trained/digits.safetensors",
    "models/trained/digits-held-out.safetensors",
    "models/trained/digits.distilled.safetensors",
    "models/trained/digits.pruned-structured.safetensors",
    "models/trained/digits.pruned-unstructured.safetensors",
    "models/quantized/digits.int8-dynamic.onnx",
    "models/quantized/digits.int8-static.onnx",
    "models/quantized/digits.int8-torch.pt",
    "scripts/import",
    // The importer uses its modules.
    "scripts/export",
    "scripts/setup",
    "scripts/jax-requirements.txt",
    "scripts/torch-requirements.txt",
];

/// Writes the list of the program's files, each with its name and content, and what tells it from the list of another build.
fn program_files() -> Result<()> {
    let mut files = Vec::new();
    for path in PROGRAM_FILES {
        println!("cargo:rerun-if-changed={path}");
        add_files(Path::new(path), &mut files)?;
    }
    files.sort();
    let here = env::current_dir()?;
    let mut hasher = DefaultHasher::new();
    let mut list = String::new();
    for path in &files {
        let name = path.to_string_lossy().replace('\\', "/");
        (&name, fs::read(path)?).hash(&mut hasher);
        list += &format!("    ({name:?}, include_bytes!({:?})),\n", here.join(path));
    }
    let count = files.len();
    let source = format!(
        "pub const IDENTITY: &str = \"{:016x}\";\npub static FILES: [(&str, &[u8]); {count}] = [\n{list}];\n",
        hasher.finish()
    );
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("program_files.rs"), source)
}

fn add_files(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        // What Python has left there.
        if !path.ends_with("__pycache__") {
            add_files(&path, files)?;
        }
    }
    Ok(())
}

/// The Protocol Buffers compiler that Cargo has downloaded for this host. Elsewhere, one has to be installed.
fn vendored_protoc() -> Option<PathBuf> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return Some(protoc_bin_vendored_linux_x86_64::protoc_bin_path());
    #[cfg(all(target_os = "linux", target_arch = "aarch64"))]
    return Some(protoc_bin_vendored_linux_aarch_64::protoc_bin_path());
    #[cfg(all(target_os = "macos", target_arch = "x86_64"))]
    return Some(protoc_bin_vendored_macos_x86_64::protoc_bin_path());
    #[cfg(all(target_os = "macos", target_arch = "aarch64"))]
    return Some(protoc_bin_vendored_macos_aarch_64::protoc_bin_path());
    #[cfg(windows)]
    return Some(protoc_bin_vendored_win32::protoc_bin_path());
    #[allow(unreachable_code)]
    None
}

/// Compiles the tracer that `src/backend/openvino/tasks.rs` has OpenVINO load.
fn openvino_tasks() -> Result<()> {
    const SOURCE: &str = "src/backend/openvino/tasks.c";
    println!("cargo:rerun-if-changed={SOURCE}");
    let library = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("openvino_tasks.so");
    let compiler = cc::Build::new().pic(true).try_get_compiler().map_err(Error::other)?;
    run(compiler.to_command().args(["-std=gnu11", "-shared", "-s", SOURCE, "-o"]).arg(library)).map(drop)
}

/// Lets a process load libtorch when it needs it; where that cannot be made, every executable is linked with libtorch.
fn find_libtorch(folder: &Path) {
    let own_functions = own_functions(folder);
    match defer_libtorch(folder, &own_functions) {
        Ok(()) => println!("cargo::rustc-cfg=libtorch_at_run_time"),
        Err(why) => {
            println!("cargo::warning=every process loads libtorch, whether or not it uses it: {why}");
            own_functions.compile(OWN_FUNCTIONS);
            println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
            for library in gpu_libraries(folder) {
                println!("cargo:rustc-link-arg=-Wl,--push-state,--no-as-needed,{library},--pop-state");
            }
        }
    }
}

/// The archive of this package's own C++ functions over libtorch.
const OWN_FUNCTIONS: &str = "inferbench_libtorch";

fn own_functions(folder: &Path) -> cc::Build {
    const SOURCE: &str = "src/backend/tch/operators.cpp";
    println!("cargo:rerun-if-changed={SOURCE}");
    let root = env::var_os("LIBTORCH_INCLUDE").map_or_else(|| folder.join(".."), PathBuf::from);
    let abi = env::var("LIBTORCH_CXX11_ABI").unwrap_or_else(|_| "1".into());
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").pic(true).warnings(false).file(SOURCE);
    // Libtorch's own classes have further fields without NDEBUG.
    build.include(root.join("include")).define("NDEBUG", None).define("_GLIBCXX_USE_CXX11_ABI", abi.as_str());
    build
}

/// Nothing refers to the GPU part by name: the linker would leave it out without a word, and no GPU be found.
fn gpu_libraries(folder: &Path) -> Vec<&'static str> {
    let is_there = |name: &&str| folder.join(format!("libtorch_{}.so", &name["-ltorch_".len()..])).exists();
    ["-ltorch_cuda", "-ltorch_hip"].into_iter().filter(is_there).collect()
}

/// Makes what `src/backend/tch/library.rs` is made of: torch-sys's C++ functions and those of this package as a shared library of
/// their own, the list of their names, and a jump through a table for each, which takes the function's place in the executable.
fn defer_libtorch(folder: &Path, own_functions: &cc::Build) -> Result<()> {
    let target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if (target("OS").as_str(), target("ARCH").as_str()) != ("linux", "x86_64") {
        return Err(Error::other("this is made for Linux on x86-64 only"));
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let archive = torch_sys_archive(&out, folder)?;
    println!("cargo:rerun-if-changed={}", archive.display());

    own_functions.clone().cargo_metadata(false).try_compile(OWN_FUNCTIONS).map_err(Error::other)?;
    let own_archive = out.join(format!("lib{OWN_FUNCTIONS}.a"));

    let mut functions = symbols(&archive, "--defined-only")?;
    functions.extend(symbols(&own_archive, "--defined-only")?);
    // Written in Rust by torch-sys for streams, which nothing here uses.
    let callbacks: String = symbols(&archive, "--undefined-only")?
        .iter()
        .filter(|name| name.starts_with("tch_"))
        .map(|name| format!("void {name}(void) {{ __builtin_trap(); }}\n"))
        .collect();
    let streams = out.join("streams.c");
    fs::write(&streams, callbacks)?;
    let mut link = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    link.args(["-shared", "-fPIC", "-s", "-Wl,-z,lazy", "-o"]).arg(out.join("libtch.so")).arg(&streams);
    link.arg("-Wl,--whole-archive").arg(&archive).arg(&own_archive).arg("-Wl,--no-whole-archive");
    link.arg("-L").arg(folder).arg(format!("-Wl,-rpath,{}", folder.display()));
    link.arg("-Wl,--no-as-needed").args(gpu_libraries(folder));
    run(link.args(["-ltorch_cpu", "-lc10", "-lgomp", "-lstdc++"]))?;

    let mut assembly = String::from(".data\n.p2align 3\ninferbench_libtorch_functions:\n");
    for _ in &functions {
        assembly += ".quad inferbench_libtorch_is_not_loaded\n";
    }
    assembly += ".globl inferbench_libtorch_functions\n.hidden inferbench_libtorch_functions\n.text\n";
    for (index, name) in functions.iter().enumerate() {
        let slot = format!("inferbench_libtorch_functions+{}(%rip)", 8 * index);
        assembly += &format!(".globl {name}\n.hidden {name}\n.type {name}, @function\n{name}: jmp *{slot}\n");
    }
    fs::write(out.join("libtorch.s"), assembly)?;
    fs::write(out.join("libtorch-functions.txt"), functions.join("\n"))
}

/// The archive that torch-sys's build script has compiled for the libtorch of this folder.
fn torch_sys_archive(out: &Path, folder: &Path) -> Result<PathBuf> {
    let builds = out.ancestors().nth(2).unwrap_or(out);
    let line = format!("cargo:libtorch_lib={}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(builds)?.flatten() {
        let (archive, output) = (entry.path().join("out/libtch.a"), entry.path().join("output"));
        let is_torch_sys = entry.file_name().to_string_lossy().starts_with("torch-sys-") && archive.is_file();
        if is_torch_sys && fs::read_to_string(output)?.lines().any(|own| own == line) {
            found.push((archive.metadata()?.modified()?, archive));
        }
    }
    let newest = found.into_iter().max().map(|(_, archive)| archive);
    newest.ok_or_else(|| Error::other(format!("torch-sys has left no libtch.a in {}", builds.display())))
}

/// The C functions of an archive.
fn symbols(archive: &Path, which: &str) -> Result<Vec<String>> {
    let listed = run(Command::new("nm").args(["--extern-only", "--format=posix", which]).arg(archive))?;
    let names = listed.lines().filter_map(|line| {
        let (name, kind) = line.split_once(' ')?;
        (kind.starts_with(['T', 'U']) && !name.starts_with("_")).then(|| name.to_owned())
    });
    let names: std::collections::BTreeSet<String> = names.collect();
    Ok(names.into_iter().collect())
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(Error::other(text(&output.stderr))) }
}
