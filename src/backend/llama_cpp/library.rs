//! llama.cpp's library: loads it once, with ggml's backends beside it, and has its functions by their names.
//!
//! The C interface of llama.cpp changes with its releases: structures that are passed by value get other fields. What stands here is that of
//! one release, and the library of another one is refused before any of these is passed.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, anyhow, ensure};
use libloading::Library;
use once_cell::sync::OnceCell;

use crate::backend::failure::classify;
use crate::backend::installed::{Installed, Search, file_beginning};
use crate::definition::{CaseFailure, Status};
use crate::paths::Paths;

/// The release whose structures stand here, and ggml's beside it.
const RELEASE: &str = "0.5.0";
const GGML_RELEASE: &str = "0.25.1";

/// The beginnings of the names of the libraries.
const LLAMA: &str = if cfg!(windows) { "llama." } else { "libllama." };
const GGML: &str = if cfg!(windows) { "ggml." } else { "libggml." };
const GGML_BASE: &str = if cfg!(windows) { "ggml-base." } else { "libggml-base." };

/// A folder with the libraries of llama.cpp, instead of the one that `inferbench setup` gets.
const VARIABLE: &str = "INFERBENCH_LLAMA_LIBRARY";

pub(super) type Token = i32;

/// Pointers to what the library has made.
pub(super) enum Model {}
pub(super) enum LlamaContext {}
pub(super) enum Memory {}
pub(super) enum Vocabulary {}
pub(super) enum Device {}
pub(super) enum Registration {}
pub(super) enum ThreadPool {}
pub(super) enum Tensor {}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ModelParameters {
    pub devices: *const *mut Device,
    pub tensor_buft_overrides: *const c_void,
    pub n_gpu_layers: i32,
    pub split_mode: c_int,
    pub load_mode: c_int,
    pub lazy_mode: c_int,
    pub main_gpu: i32,
    pub tensor_split: *const f32,
    pub progress_callback: *const c_void,
    pub progress_callback_user_data: *mut c_void,
    pub kv_overrides: *const c_void,
    pub vocab_only: bool,
    pub check_tensors: bool,
    pub use_extra_bufts: bool,
    pub no_host: bool,
    pub no_alloc: bool,
    pub load_mtp: bool,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ContextParameters {
    pub n_ctx: u32,
    pub n_batch: u32,
    pub n_ubatch: u32,
    pub n_seq_max: u32,
    pub n_rs_seq: u32,
    pub n_outputs_max: u32,
    pub n_outputs_max_per_seq: u32,
    pub n_threads: i32,
    pub n_threads_batch: i32,
    pub ctx_type: c_int,
    pub rope_scaling_type: c_int,
    pub pooling_type: c_int,
    pub attention_type: c_int,
    pub flash_attn_type: c_int,
    pub rope_freq_base: f32,
    pub rope_freq_scale: f32,
    pub yarn_ext_factor: f32,
    pub yarn_attn_factor: f32,
    pub yarn_beta_fast: f32,
    pub yarn_beta_slow: f32,
    pub yarn_orig_ctx: u32,
    pub defrag_thold: f32,
    pub cb_eval: *const c_void,
    pub cb_eval_user_data: *mut c_void,
    pub type_k: c_int,
    pub type_v: c_int,
    pub abort_callback: *const c_void,
    pub abort_callback_data: *mut c_void,
    pub embeddings: bool,
    pub offload_kqv: bool,
    pub no_perf: bool,
    pub op_offload: bool,
    pub swa_full: bool,
    pub kv_unified: bool,
    pub samplers: *mut c_void,
    pub n_samplers: usize,
    pub ctx_other: *mut LlamaContext,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct QuantiseParameters {
    pub nthread: i32,
    pub ftype: c_int,
    pub output_tensor_type: c_int,
    pub token_embedding_type: c_int,
    pub allow_requantize: bool,
    pub quantize_output_tensor: bool,
    pub only_copy: bool,
    pub pure: bool,
    pub keep_split: bool,
    pub dry_run: bool,
    pub imatrix: *const c_void,
    pub kv_overrides: *const c_void,
    pub tt_overrides: *const c_void,
    pub prune_layers: *const i32,
    pub max_buf_size: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Batch {
    pub n_tokens: i32,
    pub token: *mut Token,
    pub embd: *mut f32,
    pub pos: *mut i32,
    pub n_seq_id: *mut i32,
    pub seq_id: *mut *mut i32,
    pub logits: *mut i8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ThreadPoolParameters {
    pub cpumask: [bool; 512],
    pub n_threads: c_int,
    pub prio: c_int,
    pub poll: u32,
    pub strict_cpu: bool,
    pub paused: bool,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Feature {
    name: *const c_char,
    value: *const c_char,
}

// Sizes on machines with 64-bit pointers, as the compiler of the release has them.
const _: () = assert!(
    size_of::<*const u8>() != 8
        || (size_of::<ModelParameters>() == 80
            && size_of::<ContextParameters>() == 160
            && size_of::<QuantiseParameters>() == 64
            && size_of::<Batch>() == 56
            && size_of::<ThreadPoolParameters>() == 528)
);

/// Declares a table of functions of a library, which is read by their names.
macro_rules! functions {
    ($($name:ident: fn($($type:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that are called here, by their own names.
        pub(super) struct Functions {
            $(pub $name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl Functions {
            /// # Errors
            /// No library has one of the functions; the message names it.
            fn of(libraries: &[Library]) -> Result<Self> {
                $(
                    let name = concat!(stringify!($name), "\0").as_bytes();
                    // SAFETY: the types are those of the release's headers, and the release is checked before any of these is called.
                    let found = libraries.iter().find_map(|library| unsafe {
                        library.get::<unsafe extern "C" fn($($type),*) $(-> $result)?>(name).ok().map(|symbol| *symbol)
                    });
                    let $name = found.with_context(|| format!("it has no function {}", stringify!($name)))?;
                )*
                Ok(Functions { $($name),* })
            }
        }
    };
}

functions! {
    llama_version: fn() -> *const c_char;
    ggml_version: fn() -> *const c_char;
    llama_log_set: fn(unsafe extern "C" fn(c_int, *const c_char, *mut c_void), *mut c_void);
    llama_backend_init: fn();
    ggml_backend_load_all_from_path: fn(*const c_char);
    ggml_backend_dev_count: fn() -> usize;
    ggml_backend_dev_get: fn(usize) -> *mut Device;
    ggml_backend_dev_description: fn(*mut Device) -> *const c_char;
    ggml_backend_dev_backend_reg: fn(*mut Device) -> *mut Registration;
    ggml_backend_reg_name: fn(*mut Registration) -> *const c_char;
    ggml_backend_reg_get_proc_address: fn(*mut Registration, *const c_char) -> *const c_void;
    ggml_op_desc: fn(*const Tensor) -> *const c_char;
    ggml_get_name: fn(*const Tensor) -> *const c_char;
    ggml_threadpool_params_default: fn(c_int) -> ThreadPoolParameters;
    llama_model_default_params: fn() -> ModelParameters;
    llama_context_default_params: fn() -> ContextParameters;
    llama_model_quantize_default_params: fn() -> QuantiseParameters;
    llama_model_load_from_file: fn(*const c_char, ModelParameters) -> *mut Model;
    llama_model_free: fn(*mut Model);
    llama_model_has_encoder: fn(*const Model) -> bool;
    llama_model_has_decoder: fn(*const Model) -> bool;
    llama_model_n_params: fn(*const Model) -> u64;
    llama_model_meta_val_str: fn(*const Model, *const c_char, *mut c_char, usize) -> i32;
    llama_model_desc: fn(*const Model, *mut c_char, usize) -> i32;
    llama_model_get_vocab: fn(*const Model) -> *const Vocabulary;
    llama_vocab_n_tokens: fn(*const Vocabulary) -> i32;
    llama_init_from_model: fn(*mut Model, ContextParameters) -> *mut LlamaContext;
    llama_free: fn(*mut LlamaContext);
    llama_n_threads: fn(*mut LlamaContext) -> i32;
    llama_n_batch: fn(*const LlamaContext) -> u32;
    llama_get_memory: fn(*const LlamaContext) -> *mut Memory;
    llama_memory_seq_rm: fn(*mut Memory, i32, i32, i32) -> bool;
    llama_attach_threadpool: fn(*mut LlamaContext, *mut ThreadPool, *mut ThreadPool);
    llama_detach_threadpool: fn(*mut LlamaContext);
    llama_decode: fn(*mut LlamaContext, Batch) -> i32;
    llama_synchronize: fn(*mut LlamaContext);
    llama_get_logits_ith: fn(*mut LlamaContext, i32) -> *mut f32;
    llama_model_quantize: fn(*const c_char, *const c_char, *const QuantiseParameters) -> u32;
}

/// Functions of ggml's CPU backend, which is one of several libraries.
pub(super) struct ThreadPools {
    pub new: unsafe extern "C" fn(*mut ThreadPoolParameters) -> *mut ThreadPool,
    pub free: unsafe extern "C" fn(*mut ThreadPool),
}

/// The loaded library.
pub(super) struct Llama {
    pub functions: Functions,
    pub thread_pools: Option<ThreadPools>,
    /// llama.cpp's own release, as the library tells it.
    pub version: String,
    /// The library of the CPU's kernels: `libggml-cpu-zen4.so`.
    pub kernels: String,
    /// They stay until the process ends.
    _libraries: Vec<Library>,
}

// SAFETY: what is kept are functions, which may be called by any thread; contexts are used by one thread each.
unsafe impl Send for Llama {}
unsafe impl Sync for Llama {}

/// The folder of the library: that of `INFERBENCH_LLAMA_LIBRARY`, or of `inferbench setup`.
pub(super) fn folder() -> Result<Installed, CaseFailure> {
    let of_setup = || Some(Paths::find().native().join("llama-cpp"));
    let search = Search { key: "llama-cpp", variable: Some(VARIABLE), environment: None };
    let missing = |at: &Path| {
        CaseFailure::unavailable(format!(
            "llama.cpp is not in {}; get it with `{}`, or set {VARIABLE} to a folder with the libraries of llama.cpp {RELEASE}",
            at.display(),
            Paths::find().setup_command("llama-cpp")
        ))
    };
    let found = search.find(|_| None, of_setup).ok_or_else(|| missing(Path::new("")))?;
    if file_beginning(&found.path, LLAMA).is_some() { Ok(found) } else { Err(missing(&found.path)) }
}

/// The file of the library.
pub(super) fn file() -> Result<PathBuf, CaseFailure> {
    let folder = folder()?.path;
    Ok(file_beginning(&folder, LLAMA).unwrap_or(folder))
}

/// The process's one library.
///
/// # Errors
/// `unavailable`: it is not here, is of another release, or cannot be loaded.
pub(super) fn llama() -> Result<&'static Llama, CaseFailure> {
    static LLAMA_CPP: OnceCell<Llama> = OnceCell::new();
    let open = || {
        let folder = folder()?.path;
        let opened = load(&folder).with_context(|| format!("llama.cpp in {}", folder.display()));
        opened.map_err(|why| CaseFailure::unavailable(format!("{why:#}")))
    };
    LLAMA_CPP.get_or_try_init(open)
}

fn load(folder: &Path) -> Result<Llama> {
    let open = |beginning: &str| -> Result<Library> {
        let path = file_beginning(folder, beginning).with_context(|| format!("it has no {beginning}*"))?;
        // The error itself says only which call has failed, and its cause names the file.
        let broken = |error: libloading::Error| match std::error::Error::source(&error) {
            Some(cause) => anyhow!("{cause}"),
            None => anyhow!("{}: {error}", path.display()),
        };
        // SAFETY: loading these libraries runs no code but their initialisers.
        unsafe { Library::new(&path) }.map_err(broken)
    };
    let libraries = vec![open(GGML_BASE)?, open(GGML)?, open(LLAMA)?];
    let functions = Functions::of(&libraries)?;
    // SAFETY: both take nothing and return a text that lives as long as the library.
    let [version, ggml] =
        unsafe { [(functions.llama_version)(), (functions.ggml_version)()].map(|version| text_of(version)) };
    let is_own = |found: &str, own: &str| found.split(['-', '+']).next() == Some(own);
    ensure!(
        is_own(&version, RELEASE) && is_own(&ggml, GGML_RELEASE),
        "it is release {version} with ggml {ggml}, and only {RELEASE} with ggml {GGML_RELEASE} has the structures that are passed here"
    );
    let path = CString::new(folder.to_str().context("its path is not UTF-8")?)?;
    // SAFETY: the release is the one whose declarations stand here.
    unsafe {
        (functions.llama_log_set)(log, std::ptr::null_mut());
        (functions.ggml_backend_load_all_from_path)(path.as_ptr());
        (functions.llama_backend_init)();
    }
    let kernels = said().lines.iter().rev().find_map(|line| loaded_kernels(&line.text)).unwrap_or_default();
    let mut llama = Llama { functions, thread_pools: None, version, kernels, _libraries: libraries };
    let registration = llama.devices("cpu").first().map(|device| device.registration);
    let registration =
        registration.with_context(|| format!("no {} has kernels for this processor", "libggml-cpu-*"))?;
    let (new, free) = (c"ggml_threadpool_new", c"ggml_threadpool_free");
    // SAFETY: the backend gives its own functions of these names, which have these types in the release.
    unsafe {
        let of = |name: &CStr| (llama.functions.ggml_backend_reg_get_proc_address)(registration, name.as_ptr());
        let (new, free) = (of(new), of(free));
        if !new.is_null() && !free.is_null() {
            llama.thread_pools = Some(ThreadPools {
                new: std::mem::transmute::<
                    *const c_void,
                    unsafe extern "C" fn(*mut ThreadPoolParameters) -> *mut ThreadPool,
                >(new),
                free: std::mem::transmute::<*const c_void, unsafe extern "C" fn(*mut ThreadPool)>(free),
            });
        }
    }
    Ok(llama)
}

/// `libggml-cpu-zen4.so`, of `load_backend: loaded CPU backend from /…/libggml-cpu-zen4.so`.
fn loaded_kernels(line: &str) -> Option<String> {
    let (_, path) = line.split_once("loaded CPU backend from ")?;
    Some(Path::new(path.trim()).file_name()?.to_str()?.to_owned())
}

/// A device of ggml.
pub(super) struct GgmlDevice {
    pub device: *mut Device,
    pub registration: *mut Registration,
    pub description: String,
}

/// The name of ggml's backend of a kind of device.
pub(super) fn ggml_name(kind: &str) -> Option<&'static str> {
    match kind {
        "cpu" => Some("CPU"),
        "cuda" => Some("CUDA"),
        "mps" => Some("MTL"),
        "vulkan" => Some("Vulkan"),
        _ => None,
    }
}

impl Llama {
    /// The devices of a kind, in ggml's order.
    pub fn devices(&self, kind: &str) -> Vec<GgmlDevice> {
        let Some(name) = ggml_name(kind) else { return Vec::new() };
        let Functions { ggml_backend_dev_count, ggml_backend_dev_get, .. } = self.functions;
        let Functions { ggml_backend_dev_backend_reg, ggml_backend_reg_name, ggml_backend_dev_description, .. } =
            self.functions;
        let mut found = Vec::new();
        // SAFETY: devices are asked for by numbers below their count, and live as long as the library.
        unsafe {
            for number in 0..ggml_backend_dev_count() {
                let device = ggml_backend_dev_get(number);
                let registration = ggml_backend_dev_backend_reg(device);
                if text_of(ggml_backend_reg_name(registration)) == name {
                    let description = text_of(ggml_backend_dev_description(device));
                    found.push(GgmlDevice { device, registration, description });
                }
            }
        }
        found
    }

    /// What the kernels of the CPU use, as they tell it: `AVX512, REPACK`.
    pub fn features(&self) -> String {
        let Some(device) = self.devices("cpu").into_iter().next() else { return String::new() };
        let name = c"ggml_backend_get_features";
        let mut features = Vec::new();
        // SAFETY: the function has this type in the release, and its list ends with a feature without a name.
        unsafe {
            let get = (self.functions.ggml_backend_reg_get_proc_address)(device.registration, name.as_ptr());
            if get.is_null() {
                return String::new();
            }
            let get: unsafe extern "C" fn(*mut Registration) -> *const Feature = std::mem::transmute(get);
            let mut feature = get(device.registration);
            while !feature.is_null() && !(*feature).name.is_null() {
                if text_of((*feature).value) == "1" {
                    features.push(text_of((*feature).name));
                }
                feature = feature.add(1);
            }
        }
        features.join(" ")
    }
}

/// A text of the library.
///
/// # Safety
/// It is a null pointer, or points to a text that ends with a zero.
pub(super) unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The last lines that the library has said of what is wrong, and of what it has loaded.
static SAID: Mutex<Said> = Mutex::new(Said { lines: VecDeque::new(), count: 0, is_kept: false });
const MOST_LINES: usize = 400;

struct Said {
    lines: VecDeque<Line>,
    /// Lines that were kept so far.
    count: usize,
    /// Whether the line before was kept, which the next piece may go on with.
    is_kept: bool,
}

struct Line {
    is_error: bool,
    text: String,
}

impl Said {
    /// Adds a piece of the log. Warnings and errors are kept, and what was loaded; information is not.
    fn add(&mut self, level: c_int, text: &str) {
        /// ggml's numbers.
        const WARNING: c_int = 3;
        const ERROR: c_int = 4;
        const CONTINUED: c_int = 5;
        if level == CONTINUED {
            if let Some(line) = self.lines.back_mut().filter(|_| self.is_kept) {
                line.text.push_str(text);
            }
            return;
        }
        self.is_kept = !text.trim().is_empty() && (level >= WARNING || text.starts_with("load_backend"));
        if self.is_kept {
            if self.lines.len() == MOST_LINES {
                self.lines.pop_front();
            }
            self.count += 1;
            self.lines.push_back(Line { is_error: level == ERROR, text: text.to_owned() });
        }
    }

    /// The lines after so many.
    fn since(&self, count: usize) -> impl Iterator<Item = &Line> {
        self.lines.iter().skip(self.lines.len().saturating_sub(self.count - count))
    }

    /// What the lines after so many say of a failure, or else `otherwise`.
    fn failure(&self, count: usize, otherwise: &str) -> CaseFailure {
        // The first error says what is wrong, and those after it what failed of it.
        let first = self.since(count).find(|line| line.is_error).or_else(|| self.since(count).next());
        let line = first.map_or(otherwise, |line| line.text.trim());
        // `llama_model_load: error loading model: …` begins with names of functions.
        let line = line.rsplit_once("error loading model: ").map_or(line, |(_, rest)| rest);
        let failure = classify(format!("llama.cpp: {line}"));
        let is_memory = |line: &Line| OUT_OF_MEMORY.iter().any(|phrase| line.text.contains(phrase));
        if self.since(count).any(is_memory) {
            return CaseFailure::new(Status::OutOfMemory, failure.message);
        }
        failure
    }
}

/// How ggml and llama.cpp say that memory is short.
const OUT_OF_MEMORY: [&str; 4] =
    ["insufficient memory", "failed to allocate", "unable to allocate", "could not reserve space"];

/// Takes a piece of the library's log.
unsafe extern "C" fn log(level: c_int, text: *const c_char, _: *mut c_void) {
    // SAFETY: ggml passes texts that end with a zero.
    let text = unsafe { text_of(text) };
    if std::env::var_os(crate::backend::DEBUG).is_some() {
        eprint!("{text}");
    }
    said().add(level, &text);
}

fn said() -> MutexGuard<'static, Said> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many lines the library has said so far, for [`failure_since`].
pub(super) fn lines_so_far() -> usize {
    said().count
}

/// The failure of a call: what the library has said after so many lines, or else `otherwise`.
pub(super) fn failure_since(lines: usize, otherwise: &str) -> CaseFailure {
    said().failure(lines, otherwise)
}

/// Runs something of the library, which returns `None` if it fails: then the error is what it has said of that, or else `otherwise`.
pub(super) fn told<T>(run: impl FnOnce() -> Option<T>, otherwise: &str) -> Result<T, CaseFailure> {
    let before = lines_so_far();
    run().ok_or_else(|| failure_since(before, otherwise))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pieces: &[(c_int, &str)]) -> Said {
        let mut said = Said { lines: VecDeque::new(), count: 0, is_kept: false };
        pieces.iter().for_each(|(level, text)| said.add(*level, text));
        said
    }

    #[test]
    fn warnings_and_errors_are_kept_and_information_is_not() {
        let said = said(&[
            (2, "load_backend: loaded CPU backend from /x/libggml-cpu-zen4.so\n"),
            (2, "llama_model_loader: loaded meta data"),
            (5, " with 18 keys\n"),
            (1, "create_tensor: loading tensor\n"),
            (3, "load: a warning"),
            (5, " in two pieces\n"),
            (5, "\n"),
            (4, "decode: an error\n"),
        ]);
        let lines: Vec<&str> = said.since(0).map(|line| line.text.trim()).collect();
        let kernels = "load_backend: loaded CPU backend from /x/libggml-cpu-zen4.so";
        assert_eq!(lines, [kernels, "load: a warning in two pieces", "decode: an error"]);
        assert_eq!(loaded_kernels(lines[0]).unwrap(), "libggml-cpu-zen4.so");
        assert_eq!(said.since(2).count(), 1);
        assert_eq!(said.since(3).count(), 0);
    }

    #[test]
    fn a_failure_is_the_first_error_after_the_call_began() {
        let loading = "llama_model_load: error loading model: missing tensor 'output_norm.weight'\n";
        let said =
            said(&[(4, "of an earlier call\n"), (3, "a warning\n"), (4, loading), (4, "failed to load model\n")]);
        let failure = said.failure(1, "it failed");
        assert_eq!(
            (failure.status, failure.message.as_str()),
            (Status::Failed, "llama.cpp: missing tensor 'output_norm.weight'")
        );
        assert_eq!(said.failure(4, "llama_decode has returned -3").message, "llama.cpp: llama_decode has returned -3");
    }

    #[test]
    fn memory_that_is_short_is_told_as_such() {
        let short = "ggml_aligned_malloc: insufficient memory (attempted to allocate 4096.00 MB)\n";
        let said = said(&[(4, short), (4, "llama_init_from_model: failed to initialize the context\n")]);
        let failure = said.failure(0, "it makes no context");
        assert_eq!(failure.status, Status::OutOfMemory);
        assert!(failure.message.contains("attempted to allocate 4096.00 MB"), "{failure}");
    }
}
