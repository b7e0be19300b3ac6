//! The weights of a GGUF file, and the parts of a decoder that have weights.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use candle_core::quantized::ggml_file::qtensor_from_ggml;
use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{Device, Error, Module, Result, Tensor, bail};
use candle_nn::ops::rms_norm;

use crate::backend::candle::tensor::add_bias;
use crate::backend::recorder::Recorder;
use crate::gguf::{ElementKind, Header, TensorInfo};
use crate::run_data::OperatorCall;

/// The tensors of a file.
pub struct Weights<'a> {
    pub header: &'a Header,
    file: fs_err::File,
    pub device: &'a Device,
    is_exact: bool,
    tape: Option<Recorder>,
    /// The names of the tensors that were taken.
    pub used: RefCell<HashSet<String>>,
}

impl<'a> Weights<'a> {
    pub fn open(
        file: &Path,
        header: &'a Header,
        device: &'a Device,
        is_exact: bool,
        tape: Option<Recorder>,
    ) -> anyhow::Result<Self> {
        let file = fs_err::File::open(file)?;
        Ok(Weights { header, file, device, is_exact, tape, used: RefCell::default() })
    }

    pub fn has(&self, name: &str) -> bool {
        self.info(name).is_ok()
    }

    pub fn info(&self, name: &str) -> Result<&TensorInfo> {
        let found = self.header.tensors.iter().find(|tensor| tensor.name == name);
        found.ok_or_else(|| Error::Msg(format!("the file has no tensor {name:?}")))
    }

    fn quantised(&self, name: &str) -> Result<QTensor> {
        let tensor = self.info(name)?;
        self.used.borrow_mut().insert(name.to_owned());
        let Some(kind) = ggml_dtype(tensor.kind) else {
            bail!("tensor {name:?} is of type {}, which is not supported by candle", tensor.kind.name())
        };
        let shape = tensor.sizes.iter().rev().map(|&size| size as usize).collect();
        // The pages of a mapped file would count as memory of this process, in addition to the copy.
        let (mut bytes, mut file) = (vec![0; tensor.bytes as usize], &self.file);
        file.seek(SeekFrom::Start(tensor.begin))?;
        file.read_exact(&mut bytes)?;
        qtensor_from_ggml(kind, &bytes, shape, self.device)
    }

    pub fn product(&self, name: &str) -> Result<QMatMul> {
        let tensor = self.quantised(name)?;
        if self.is_exact {
            return Ok(QMatMul::Tensor(tensor.dequantize(self.device)?));
        }
        QMatMul::from_qtensor(tensor)
    }

    pub fn plain(&self, name: &str) -> Result<Tensor> {
        self.quantised(name)?.dequantize(self.device)
    }

    pub fn linear(&self, name: &str) -> Result<Linear> {
        let bias = format!("{name}.bias");
        let bias = if self.has(&bias) { Some(self.plain(&bias)?) } else { None };
        self.linear_of(name, self.product(&format!("{name}.weight"))?, bias)
    }

    /// A linear layer whose weight was taken before.
    pub fn linear_of(&self, name: &str, weight: QMatMul, bias: Option<Tensor>) -> Result<Linear> {
        let operator = format!("QMatMul {}", self.info(&format!("{name}.weight"))?.kind.name());
        Ok(Linear { weight, bias, note: self.note(name, &operator) })
    }

    pub fn norm(&self, name: &str, epsilon: f32) -> Result<Norm> {
        let weight = self.plain(&format!("{name}.weight"))?;
        Ok(Norm { weight, epsilon, note: self.note(name, "rms_norm") })
    }

    pub fn note(&self, name: &str, operator: &str) -> Note {
        Note { tape: self.tape.clone(), name: name.into(), operator: operator.into() }
    }
}

fn ggml_dtype(kind: ElementKind) -> Option<GgmlDType> {
    Some(match kind.name() {
        "F32" => GgmlDType::F32,
        "F16" => GgmlDType::F16,
        "BF16" => GgmlDType::BF16,
        "Q4_0" => GgmlDType::Q4_0,
        "Q4_1" => GgmlDType::Q4_1,
        "Q5_0" => GgmlDType::Q5_0,
        "Q5_1" => GgmlDType::Q5_1,
        "Q8_0" => GgmlDType::Q8_0,
        "Q2_K" => GgmlDType::Q2K,
        "Q3_K" => GgmlDType::Q3K,
        "Q4_K" => GgmlDType::Q4K,
        "Q5_K" => GgmlDType::Q5K,
        "Q6_K" => GgmlDType::Q6K,
        _ => return None,
    })
}

/// The tape that times an operator, and the names under which the operator is noted.
pub struct Note {
    tape: Option<Recorder>,
    name: String,
    operator: String,
}

impl Note {
    pub fn around<O>(&self, run: impl FnOnce() -> O) -> O {
        let Some(tape) = &self.tape else { return run() };
        let call = || {
            // The block: `blk.3` of `blk.3.attn_q`.
            let module = self.name.rsplit_once('.').map(|(block, _)| block.to_owned());
            OperatorCall { node: self.name.clone(), operator: self.operator.clone(), module, ..OperatorCall::default() }
        };
        tape.time(call, run)
    }
}

pub struct Linear {
    weight: QMatMul,
    bias: Option<Tensor>,
    note: Note,
}

impl Linear {
    pub fn forward(&self, states: &Tensor) -> Result<Tensor> {
        self.note.around(|| add_bias(self.weight.forward(states)?, &self.bias))
    }
}

pub struct Norm {
    weight: Tensor,
    epsilon: f32,
    note: Note,
}

impl Norm {
    pub fn forward(&self, states: &Tensor) -> Result<Tensor> {
        self.note.around(|| rms_norm(&states.contiguous()?, &self.weight, self.epsilon))
    }
}
