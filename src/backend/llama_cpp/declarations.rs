//! The C interface of one release of llama.cpp and ggml, as far as it is used: structures that are passed by value, and
//! functions by their names.
//!
//! Structures change between releases. So the library of another release is refused before any structure is passed.

use std::ffi::{c_char, c_int, c_void};

use anyhow::{Context, Result};
use libloading::Library;

pub(super) type Token = i32;

/// The targets of the library's pointers, whose layout is unknown here.
pub(super) enum Model {}
pub(super) enum LlamaContext {}
pub(super) enum Memory {}
pub(super) enum Vocabulary {}
pub(super) enum Device {}
pub(super) enum Registration {}
pub(super) enum ThreadPool {}
pub(super) enum Tensor {}

#[repr(C)]
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
pub(super) struct ThreadPoolParameters {
    pub cpumask: [bool; 512],
    pub n_threads: c_int,
    pub prio: c_int,
    pub poll: u32,
    pub strict_cpu: bool,
    pub paused: bool,
}

// The sizes of the release's structures on machines with 64-bit pointers.
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
            pub(super) fn of(libraries: &[Library]) -> Result<Self> {
                $(
                    let name = concat!(stringify!($name), "\0").as_bytes();
                    // SAFETY: the types are those of the release's headers, and the release is checked before any of
                    // these is called.
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
