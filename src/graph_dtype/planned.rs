//! Initializers of a new graph before their values are there: where each comes from, and the bytes that are written.

use anyhow::Result;
use half::{bf16, f16};

use super::quantised::Quantised;
use crate::onnx::proto::{TensorProto, element, element_bytes};
use crate::onnx::{Source, floats};

/// A new initializer.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub name: String,
    pub dims: Vec<i64>,
    pub content: Content,
}

/// The content of a new initializer. A number is the place of an initializer of the source.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// As it is.
    Same(usize),
    F16(usize),
    Bf16(usize),
    /// Eight-bit integers, by [`Quantised`].
    I8(Quantised),
    /// The scales of the eight-bit integers, one number per channel.
    Scale(Quantised),
    /// The bias of a product of quantised weights, in i32, and its scales.
    Bias(Quantised),
    BiasScale(Quantised),
    /// One number that is not in the source.
    Number(f32),
    ZeroPoint(u8),
    /// The zero points of signed eight-bit integers.
    Zeros,
}

/// Elements that are converted at a time.
const CHUNK: usize = 1 << 16;

impl Planned {
    pub fn element(&self, source: &Source) -> i32 {
        match &self.content {
            Content::Same(place) => source.graph.initializers[*place].data_type,
            Content::F16(_) => element::FLOAT16,
            Content::Bf16(_) => element::BFLOAT16,
            Content::I8(_) | Content::Zeros => element::INT8,
            Content::Bias(_) => element::INT32,
            Content::ZeroPoint(_) => element::UINT8,
            Content::Scale(_) | Content::BiasScale(_) | Content::Number(_) => element::FLOAT,
        }
    }

    /// The number of bytes of its values, if they are stored as bytes.
    pub fn size_bytes(&self, source: &Source) -> Option<u64> {
        let elements = TensorProto { dims: self.dims.clone(), ..TensorProto::default() }.elements()?;
        elements.checked_mul(element_bytes(self.element(source))? as u64)
    }

    /// Passes the values to `sink` in pieces. Returns `false` if they are not stored as bytes.
    ///
    /// # Errors
    /// The source's values are missing or do not fit their shape, or the sink fails.
    pub fn write(&self, source: &Source, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<bool> {
        let tensor = |place: usize| &source.graph.initializers[place];
        match self.content {
            Content::Same(place) => {
                let Some(width) = element_bytes(tensor(place).data_type) else { return Ok(false) };
                let Some(bytes) = source.bytes(tensor(place), width)? else { return Ok(false) };
                sink(bytes.as_slice())?;
            }
            Content::F16(place) | Content::Bf16(place) => {
                let narrow = |value| match self.content {
                    Content::F16(_) => to_f16(value).to_le_bytes(),
                    _ => to_bf16(value).to_le_bytes(),
                };
                for chunk in source.float_bytes(tensor(place))?.as_slice().chunks(4 * CHUNK) {
                    sink(&floats(chunk).flat_map(narrow).collect::<Vec<u8>>())?;
                }
            }
            Content::Number(number) => sink(&number.to_le_bytes())?,
            Content::ZeroPoint(number) => sink(&[number])?,
            Content::Zeros => sink(&vec![0; self.size_bytes(source).unwrap_or(0) as usize])?,
            Content::I8(weight) => sink(&weight.integers(source)?)?,
            Content::Scale(weight) => sink(&little_endian(weight.scales(source)?))?,
            Content::BiasScale(weight) => sink(&little_endian(weight.bias_scales(source)?))?,
            Content::Bias(weight) => {
                let bytes: Vec<u8> = weight.bias(source)?.into_iter().flat_map(i32::to_le_bytes).collect();
                sink(&bytes)?;
            }
        }
        Ok(true)
    }
}

fn little_endian(numbers: Vec<f32>) -> Vec<u8> {
    numbers.into_iter().flat_map(f32::to_le_bytes).collect()
}

/// The nearest f16. A finite number stays finite, and a number other than 0 does not become 0: the small constant under a
/// root must keep its quotient finite.
pub(super) fn to_f16(value: f32) -> f16 {
    if value.is_infinite() {
        return f16::from_f32(value);
    }
    let nearest = f16::from_f32(value.clamp(f16::MIN.to_f32(), f16::MAX.to_f32()));
    if value != 0.0 && nearest.to_f32() == 0.0 {
        return if value > 0.0 { f16::MIN_POSITIVE_SUBNORMAL } else { -f16::MIN_POSITIVE_SUBNORMAL };
    }
    nearest
}

/// The nearest bf16; a finite number stays finite.
pub(super) fn to_bf16(value: f32) -> bf16 {
    if value.is_infinite() {
        return bf16::from_f32(value);
    }
    bf16::from_f32(value.clamp(bf16::MIN.to_f32(), bf16::MAX.to_f32()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_becomes_the_nearest_that_is_as_finite_and_as_much_zero(value in any::<f32>()) {
            let narrow = [to_f16(value).to_f32(), to_bf16(value).to_f32()];
            for narrow in narrow {
                prop_assert_eq!((narrow.is_nan(), narrow.is_infinite()), (value.is_nan(), value.is_infinite()));
                prop_assert!(value.is_nan() || narrow.is_sign_positive() == value.is_sign_positive());
            }
            prop_assert_eq!(narrow[0] == 0.0, value == 0.0);
            if value.abs() > 1e-4 && value.abs() < 65504.0 {
                prop_assert!((narrow[0] - value).abs() <= value.abs() / 2048.0);
            }
            if value.is_normal() && value.abs() < 3.38e38 {
                prop_assert!((narrow[1] - value).abs() <= value.abs() / 256.0);
            }
        }
    }

    #[test]
    fn an_attention_bias_of_the_least_f32_is_the_least_f16() {
        assert_eq!(to_f16(f32::MIN).to_f32(), -65504.0);
        assert_eq!(to_bf16(f32::MIN), bf16::MIN);
        assert_eq!(to_f16(f32::NEG_INFINITY), f16::NEG_INFINITY);
        assert_eq!(to_f16(1e-12), f16::MIN_POSITIVE_SUBNORMAL);
    }
}
