//! A model of llama.cpp and its contexts, which keep sequences of tokens in a cache and compute what follows them.

use std::ffi::{CString, c_int};
use std::path::Path;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use super::declarations::{Batch, LlamaContext, Model, ThreadPool, Token};
use super::library::{Llama, devices_of, llama};
use super::log::told;
use super::operators::Watch;
use super::settings::Settings;
use crate::definition::{CaseFailure, device_index, device_kind};

/// The most sequences that a context of the release can have.
pub(super) const MOST_SEQUENCES: usize = 256;

/// Loaded weights.
pub(super) struct LoadedModel {
    llama: &'static Llama,
    model: *mut Model,
    pub vocabulary: usize,
}

// SAFETY: llama.cpp's contexts only read a loaded model, and several may do so at the same time.
unsafe impl Send for LoadedModel {}
unsafe impl Sync for LoadedModel {}

impl LoadedModel {
    /// Loads a file for a device.
    ///
    /// # Errors
    /// The library or the device is missing, llama.cpp refuses the file (the message is then its own), or the file is
    /// not a text decoder.
    pub fn load(file: &Path, device: &str, settings: &Settings) -> Result<Self, CaseFailure> {
        let llama = llama()?;
        let functions = &llama.functions;
        let path = c_path(file)?;
        let is_cpu = device_kind(device) == "cpu";
        let mut devices = vec![ptr::null_mut()];
        if !is_cpu {
            let found = devices_of(functions, device_kind(device));
            let chosen = found.get(device_index(device));
            let missing = || CaseFailure::unavailable(format!("llama.cpp finds no {device} here"));
            devices.insert(0, chosen.ok_or_else(missing)?.device);
        }
        let load = || {
            // SAFETY: the parameters are the library's defaults except for the fields set here; the list of devices
            // ends with a null pointer, and the list and the path live as long as the call.
            unsafe {
                let mut parameters = (functions.llama_model_default_params)();
                parameters.devices = devices.as_ptr();
                parameters.n_gpu_layers = if is_cpu { 0 } else { -1 };
                // One GPU, if any.
                parameters.split_mode = 0;
                parameters.load_mode = c_int::from(settings.maps_file);
                parameters.use_extra_bufts = settings.repacks;
                let model = (functions.llama_model_load_from_file)(path.as_ptr(), parameters);
                (!model.is_null()).then_some(model)
            }
        };
        let model = told(load, "it cannot load the file")?;
        // SAFETY: the model was loaded.
        let vocabulary = unsafe { (functions.llama_vocab_n_tokens)((functions.llama_model_get_vocab)(model)) };
        let loaded = LoadedModel { llama, model, vocabulary: usize::try_from(vocabulary).unwrap_or(0) };
        // SAFETY: the model was loaded.
        let is_decoder =
            unsafe { (functions.llama_model_has_decoder)(model) && !(functions.llama_model_has_encoder)(model) };
        if !is_decoder || loaded.vocabulary == 0 {
            return Err(CaseFailure::unsupported(
                "the file has an encoder or no vocabulary, and only text decoders are run",
            ));
        }
        Ok(loaded)
    }

    pub fn parameters(&self) -> u64 {
        // SAFETY: the model is loaded as long as `self` lives.
        unsafe { (self.llama.functions.llama_model_n_params)(self.model) }
    }

    /// llama.cpp's description of the model: `llama 1B Q4_K - Medium`.
    pub fn description(&self) -> String {
        let mut text = [0_u8; 128];
        // SAFETY: the buffer has the given length.
        let length =
            unsafe { (self.llama.functions.llama_model_desc)(self.model, text.as_mut_ptr().cast(), text.len()) };
        // The result is the length of the whole text, or negative if there is none.
        let length = usize::try_from(length).unwrap_or(0).min(text.len() - 1);
        String::from_utf8_lossy(&text[..length]).into_owned()
    }
}

impl Drop for LoadedModel {
    fn drop(&mut self) {
        // SAFETY: contexts hold the model, so none is left.
        unsafe { (self.llama.functions.llama_model_free)(self.model) };
    }
}

/// A token at a place of a sequence.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    pub token: Token,
    pub position: usize,
    pub sequence: usize,
    /// Whether the logits after it are requested.
    pub is_asked: bool,
}

/// A cache of sequences, and the threads that compute with it.
pub(super) struct Context {
    pub model: Arc<LoadedModel>,
    context: *mut LlamaContext,
    threads: Option<*mut ThreadPool>,
    /// llama.cpp calls it before and after each operator.
    _watch: Option<Rc<Watch>>,
    pub sequences: usize,
    /// Positions per sequence.
    pub length: usize,
    /// Buffers for the arguments of a call, which keep their memory.
    tokens: Vec<Token>,
    positions: Vec<i32>,
    counts: Vec<i32>,
    of_token: Vec<i32>,
    pointers: Vec<*mut i32>,
    asked: Vec<i8>,
}

impl Context {
    /// A context for at least `length` positions in each of `sequences` sequences.
    ///
    /// # Errors
    /// Memory ran out, or llama.cpp refuses a setting; the message is its own. Or the model has no cache.
    pub fn new(
        model: Arc<LoadedModel>,
        (device, threads): (&str, usize),
        settings: &Settings,
        (sequences, length): (usize, usize),
        watch: Option<Rc<Watch>>,
    ) -> Result<Self, CaseFailure> {
        let functions = &model.llama.functions;
        let length = length.next_multiple_of(256);
        let sizes = u32::try_from(sequences).ok().zip(u32::try_from(length).ok());
        let sizes = sizes.and_then(|(count, positions)| Some((count, count.checked_mul(positions)?)));
        let (count, all) = sizes.ok_or_else(|| CaseFailure::failed("too many positions for llama.cpp"))?;
        let threads = i32::try_from(threads).unwrap_or(i32::MAX).min(512);
        let is_cpu = device_kind(device) == "cpu";
        let open = || {
            // SAFETY: the parameters are the library's defaults except for the fields set here.
            unsafe {
                let mut parameters = (functions.llama_context_default_params)();
                parameters.n_ctx = all;
                // Each call passes one batch, which llama.cpp cuts into micro-batches.
                parameters.n_batch = all.max(2048);
                parameters.n_ubatch = settings.micro_batch;
                parameters.n_seq_max = count;
                parameters.n_threads = threads;
                parameters.n_threads_batch = threads;
                parameters.flash_attn_type = settings.flash_attention as c_int;
                parameters.type_k = settings.cache_number();
                parameters.type_v = settings.cache_number();
                parameters.offload_kqv = !is_cpu;
                parameters.op_offload = !is_cpu;
                if let Some(watch) = &watch {
                    (parameters.cb_eval, parameters.cb_eval_user_data) = watch.callback();
                }
                let context = (functions.llama_init_from_model)(model.model, parameters);
                (!context.is_null()).then_some(context)
            }
        };
        let context = told(open, "it cannot make a context")?;
        // SAFETY: the context was made.
        let memory = unsafe { (functions.llama_get_memory)(context) };
        let mut made = Context {
            model: Arc::clone(&model),
            context,
            threads: None,
            _watch: watch,
            sequences,
            length,
            tokens: Vec::new(),
            positions: Vec::new(),
            counts: Vec::new(),
            of_token: Vec::new(),
            pointers: Vec::new(),
            asked: Vec::new(),
        };
        if memory.is_null() {
            return Err(CaseFailure::unsupported("the model has no cache, so it cannot generate tokens"));
        }
        // One pool for all calls, as in llama-bench: otherwise each call would start threads.
        // SAFETY: the parameters are the library's defaults; the pool outlives its use by the context, which is freed
        // first.
        unsafe {
            let mut parameters = (functions.ggml_threadpool_params_default)(threads);
            let pool = (model.llama.thread_pools.new)(&raw mut parameters);
            if !pool.is_null() {
                (functions.llama_attach_threadpool)(context, pool, ptr::null_mut());
                made.threads = Some(pool);
            }
        }
        Ok(made)
    }

    /// Threads of a call, as the library reports them.
    pub fn thread_count(&self) -> Option<usize> {
        // SAFETY: the context lives as long as `self`.
        usize::try_from(unsafe { (self.model.llama.functions.llama_n_threads)(self.context) }).ok()
    }

    /// The most tokens of a call, as the library reports them.
    pub fn batch(&self) -> u32 {
        // SAFETY: the context lives as long as `self`.
        unsafe { (self.model.llama.functions.llama_n_batch)(self.context) }
    }

    /// Removes a sequence's tokens from a position on.
    ///
    /// # Errors
    /// The model's memory cannot forget a part of a sequence.
    pub fn forget(&mut self, sequence: usize, from: usize) -> Result<(), CaseFailure> {
        let functions = &self.model.llama.functions;
        let (sequence, from) = (number(sequence)?, number(from)?);
        // SAFETY: the context lives as long as `self`.
        let is_done =
            unsafe { (functions.llama_memory_seq_rm)((functions.llama_get_memory)(self.context), sequence, from, -1) };
        if is_done {
            return Ok(());
        }
        Err(CaseFailure::unsupported(
            "decoding begins again at the prompt, and the model's memory cannot go back to it",
        ))
    }

    /// Adds tokens to their sequences and computes them.
    ///
    /// # Errors
    /// A token is not in the vocabulary, the cache has no room, or llama.cpp fails.
    pub fn decode(&mut self, placed: impl Iterator<Item = Placed>) -> Result<(), CaseFailure> {
        self.tokens.clear();
        self.positions.clear();
        self.of_token.clear();
        self.asked.clear();
        for Placed { token, position, sequence, is_asked } in placed {
            if usize::try_from(token).map_or(true, |token| token >= self.model.vocabulary) {
                return Err(CaseFailure::failed(format!(
                    "the token {token} is not among the model's {} tokens",
                    self.model.vocabulary
                )));
            }
            if position >= self.length || sequence >= self.sequences {
                return Err(CaseFailure::failed(format!(
                    "position {position} of sequence {sequence}, but llama.cpp's cache has {} positions of {} sequences",
                    self.length, self.sequences
                )));
            }
            self.tokens.push(token);
            self.positions.push(number(position)?);
            self.of_token.push(number(sequence)?);
            self.asked.push(i8::from(is_asked));
        }
        self.counts.resize(self.tokens.len(), 1);
        self.pointers.clear();
        self.pointers.extend(self.of_token.iter_mut().map(ptr::from_mut));
        let batch = Batch {
            n_tokens: number(self.tokens.len())?,
            token: self.tokens.as_mut_ptr(),
            embd: ptr::null_mut(),
            pos: self.positions.as_mut_ptr(),
            n_seq_id: self.counts.as_mut_ptr(),
            seq_id: self.pointers.as_mut_ptr(),
            logits: self.asked.as_mut_ptr(),
        };
        let mut code = 0;
        let decode = || {
            // SAFETY: all lists have as many elements as there are tokens, and live as long as the call; tokens and
            // sequences are in range.
            code = unsafe { (self.model.llama.functions.llama_decode)(self.context, batch) };
            (code == 0).then_some(())
        };
        told(decode, "it does not say why").map_err(|failure| match code {
            1 => CaseFailure::failed("llama.cpp's cache has no room for the tokens of a call: llama_decode returned 1"),
            _ => CaseFailure::new(failure.status, format!("{}; llama_decode returned {code}", failure.message)),
        })
    }

    /// Waits until the device is idle.
    pub fn synchronise(&mut self) {
        // SAFETY: the context lives as long as `self`.
        unsafe { (self.model.llama.functions.llama_synchronize)(self.context) };
    }

    /// The logits after the token at a place of the last call, which has to have requested them: f32 `[vocabulary]`.
    ///
    /// # Errors
    /// llama.cpp has no logits there.
    pub fn logits(&mut self, place: usize) -> Result<&[f32], CaseFailure> {
        let place = number(place)?;
        // SAFETY: the context lives as long as `self`; a row has as many numbers as the vocabulary has tokens, and
        // stays until the next call.
        unsafe {
            let row = (self.model.llama.functions.llama_get_logits_ith)(self.context, place);
            if row.is_null() {
                return Err(CaseFailure::failed("llama.cpp gives no logits"));
            }
            Ok(std::slice::from_raw_parts(row, self.model.vocabulary))
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is not used any more, and its threads are freed after it.
        unsafe {
            (self.model.llama.functions.llama_detach_threadpool)(self.context);
            (self.model.llama.functions.llama_free)(self.context);
            if let Some(pool) = self.threads {
                (self.model.llama.thread_pools.free)(pool);
            }
        }
    }
}

/// A path as the library takes it.
pub(super) fn c_path(path: &Path) -> Result<CString, CaseFailure> {
    let text = path.to_str().and_then(|path| CString::new(path).ok());
    text.ok_or_else(|| CaseFailure::failed(format!("{} is not UTF-8", path.display())))
}

fn number(count: usize) -> Result<i32, CaseFailure> {
    i32::try_from(count).map_err(|_| CaseFailure::failed(format!("{count} is too large a number for llama.cpp")))
}
