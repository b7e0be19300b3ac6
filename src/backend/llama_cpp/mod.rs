//! llama.cpp: language models as GGUF files, with llama.cpp's own library, which is loaded at run time.
//!
//! A packaged or imported model is written as a GGUF file of f32, from which llama.cpp makes the other forms; a user's
//! file is loaded as it is. In f32, flash attention is off and the cache is f32, as in the other backends; other forms
//! run with llama.cpp's defaults. The record has all settings.

mod context;
mod declarations;
mod library;
mod log;
mod operators;
mod session;
mod settings;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use self::context::{LoadedModel, c_path};
use self::library::{devices_of, ggml_name, llama};
use self::log::told;
use self::session::LlamaSession;
use self::settings::Settings;
use crate::backend::artifact::names;
use crate::backend::cuda::cuda_environment;
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, ProfiledSession, Session};
use crate::backend::recorder::{RecordedSession, Recorder};
use crate::definition::{CaseFailure, Dtype, Model, Origin, Scheme, device_index, device_kind};
use crate::fixture::{GgufForm, Reads};
use crate::gguf::Architecture;

/// The dtypes in which f32 weights are written as GGUF.
const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

pub struct LlamaCpp;

impl Backend for LlamaCpp {
    fn devices(&self) -> Vec<DeviceReport> {
        let folder = library::folder();
        let found = |device: &str| {
            let shown = folder.as_ref().map_err(CaseFailure::clone)?;
            let missing =
                || CaseFailure::unavailable(format!("{} has no library of ggml for {device}", shown.display()));
            has_backend(shown, device).then(|| shown.display().to_string()).ok_or_else(missing)
        };
        ["cpu", "cuda", "mps", "vulkan"].map(|device| DeviceReport::probed(device, found(device))).into()
    }

    fn probe(&self, device: &str) -> Result<String, CaseFailure> {
        let llama = llama()?;
        let found = devices_of(&llama.functions, device_kind(device)).into_iter().nth(device_index(device));
        let found = found.ok_or_else(|| CaseFailure::unavailable(format!("llama.cpp finds no {device} here")))?;
        let is_cpu = device == "cpu";
        Ok(if is_cpu { format!("{} ({})", found.description, llama.kernels) } else { found.description })
    }

    /// When ggml aborts, it prints the reason. Without this variable, a backtrace would follow and be the last output.
    fn process_environment(&self, device: &str) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![("GGML_NO_BACKTRACE", "1".into())];
        variables.extend(cuda_environment(device));
        variables
    }

    fn library_version(&self, _device: &str) -> Option<String> {
        Some(llama().map_or_else(|_| String::new(), |llama| llama.version.clone()))
    }

    fn library_path(&self, _device: &str) -> Option<PathBuf> {
        library::file().ok()
    }

    fn reads(&self) -> Reads {
        Reads::Gguf
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        let unsupported = |why: &str| Err(CaseFailure::unsupported(why));
        match &model.origin {
            Origin::Gguf { .. } => Ok(()),
            Origin::Packaged { .. } if model.generation.is_none() => {
                unsupported("it runs GGUF files of language models only")
            }
            Origin::Packaged { .. } if model.inputs.len() != 1 => {
                unsupported("its weights are not written as GGUF; those of llama, qwen2, qwen3 and gpt2 are")
            }
            Origin::Packaged { folder, .. } if let Err(why) = Architecture::of_folder(folder) => {
                unsupported(&format!("its weights are not written as GGUF: {why:#}"))
            }
            Origin::Packaged { .. } if model.gguf_scheme().is_some() => Ok(()),
            Origin::Packaged { quantization: Some(_), .. } => unsupported("this variant is made from ONNX graphs"),
            Origin::Packaged { .. } if DTYPES.contains(&dtype) => Ok(()),
            Origin::Packaged { .. } => {
                unsupported(&format!("no GGUF file in {dtype}; there are {}, and `--variant q8_0`", names(&DTYPES)))
            }
            Origin::Files { .. } => unsupported("it reads GGUF files"),
        }
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        let mut session = open(request)?;
        session.reserve(request.sizes.batch)?;
        Ok(Box::new(session))
    }

    fn load_profiled(&self, request: &LoadRequest<'_>) -> Result<Box<dyn ProfiledSession>, CaseFailure> {
        let tape = Recorder::default();
        let session = Box::new(open(request)?.watched_by(tape.clone()));
        Ok(Box::new(RecordedSession { session, tape }))
    }

    /// The weights of the file, dequantised by llama.cpp.
    fn load_exact(&self, request: &LoadRequest<'_>, folder: &Path) -> Result<Option<Box<dyn Session>>, CaseFailure> {
        let (file, in_f32) = (file_of(request)?, folder.join("f32.gguf"));
        let request = LoadRequest { dtype: Dtype::F32, instances: 1, ..*request };
        // A file that llama.cpp cannot load may end the process when it is converted, so it is loaded before.
        drop(LoadedModel::load(&file, request.device, &Settings { repacks: false, ..Settings::exact() })?);
        quantise(&file, &in_f32, GgufForm::F32)?;
        Ok(Some(Box::new(LlamaSession::load(&request, in_f32, Settings::exact())?)))
    }
}

fn open(request: &LoadRequest<'_>) -> Result<LlamaSession, CaseFailure> {
    LlamaSession::load(request, file_of(request)?, Settings::of(request.dtype)?)
}

fn file_of(request: &LoadRequest<'_>) -> Result<PathBuf, CaseFailure> {
    let missing = || CaseFailure::unsupported("there is no GGUF file of the model");
    request.artifacts.gguf.clone().ok_or_else(missing)
}

/// Whether a folder has a library of ggml for a device, or none for any device: then `libggml` itself has the backends,
/// and only a probe tells which.
fn has_backend(folder: &Path, device: &str) -> bool {
    let Some(name) = ggml_name(device) else { return false };
    let name = if device == "mps" { "metal".to_owned() } else { name.to_lowercase() };
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    let of_backend = |file: String| Some(file.trim_start_matches("lib").strip_prefix("ggml-")?.to_owned());
    let backends: Vec<String> = names.filter_map(of_backend).filter(|file| !file.starts_with("base")).collect();
    backends.is_empty() || backends.iter().any(|file| file.starts_with(&name))
}

/// llama.cpp's number for a form.
fn form_number(form: GgufForm) -> i32 {
    match form {
        GgufForm::F32 => 0,
        GgufForm::F16 => 1,
        GgufForm::Bf16 => 32,
        GgufForm::Quantised(Scheme::Q4) => 2,
        GgufForm::Quantised(Scheme::Q8) => 7,
        GgufForm::Quantised(Scheme::Q4KM) => 15,
        GgufForm::Quantised(Scheme::Q5KM) => 17,
        GgufForm::Quantised(Scheme::Q6K) => 18,
    }
}

/// # Errors
/// The variable with settings has an invalid one.
pub fn check_settings() -> Result<(), CaseFailure> {
    Settings::of(Dtype::F32).map(drop)
}

/// Converts a GGUF file to another form.
///
/// # Errors
/// llama.cpp's library is missing, or it refuses the file; the message says why.
pub fn quantise(from: &Path, to: &Path, form: GgufForm) -> Result<(), CaseFailure> {
    let llama = llama()?;
    let (from, to) = (c_path(from)?, c_path(to)?);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get()) as i32;
    let quantise = || {
        // SAFETY: the parameters are the library's defaults except for the fields set here, and the paths live as long
        // as the call.
        let code = unsafe {
            let mut parameters = (llama.functions.llama_model_quantize_default_params)();
            parameters.nthread = threads;
            parameters.ftype = form_number(form);
            parameters.allow_requantize = true;
            (llama.functions.llama_model_quantize)(from.as_ptr(), to.as_ptr(), &raw const parameters)
        };
        (code == 0).then_some(())
    };
    told(quantise, "it cannot quantise the file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_library_for_any_device_may_have_all() {
        let has = |files: &[&str]| {
            let folder = tempfile::tempdir().unwrap();
            files.iter().for_each(|file| fs_err::write(folder.path().join(file), "").unwrap());
            ["cpu", "cuda", "mps"].map(|device| has_backend(folder.path(), device))
        };
        assert_eq!(has(&["libggml-base.so", "libggml-cpu-zen4.so", "libggml-cuda.so"]), [true, true, false]);
        assert_eq!(has(&["libggml-base.dylib", "libggml-metal.dylib"]), [false, false, true]);
        assert_eq!(has(&["libggml-base.so.0", "libggml.so", "libllama.so"]), [true; 3]);
    }
}
