//! What an operator computes, whatever a runtime calls it: `aten::linear`, `Gemm` and `FullyConnected` are one kind.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run_data::OUTSIDE;

/// A kind of operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Kind {
    Convolution,
    Matmul,
    Normalisation,
    /// Also its softmax and rotary embeddings, if these are operators of their own.
    Attention,
    Activation,
    /// Also means and sums over axes.
    Pooling,
    /// Also other reading by index.
    Embedding,
    Elementwise,
    /// Copies, casts, quantisation, and whatever changes a shape.
    DataMovement,
    Other,
    /// The rest of a call, which is in no operator.
    Outside,
}

/// The kinds, each with parts of operators' names. The first rule that fits decides: `aten::max_pool2d` is pooling
/// though it has `max`. A part after `=` is a whole name.
const RULES: [(Kind, &str); 12] = [
    (Kind::DataMovement, "resize upsample interpolate depthtospace"),
    (Kind::Elementwise, "optbin unicast"),
    (Kind::DataMovement, "reorder convert quantizelinear fakequantize quantize_per"),
    (Kind::Normalisation, "norm mvn rms"),
    (Kind::Attention, "attention attn softmax soft_max mha sdpa rotary rope"),
    (Kind::Convolution, "conv depthwise im2col"),
    (Kind::Matmul, "matmul mat_mul mul_mat gemm linear fullyconnected einsum addmm bmm dense =mm =mv =dot"),
    (Kind::Pooling, "pool mean reduce average =sum"),
    (Kind::Embedding, "gather embedding index onehot scatter get_rows"),
    (Kind::Activation, "elu silu glu sigmoid tanh swish mish softplus erf -act =inter"),
    (
        Kind::DataMovement,
        "shape transpose permute copy concat downsample slice split cast contiguous view expand squeeze pad clone select narrow chunk \
         flatten broadcast repeat tile empty axis stack strided unfold fill zeros identity constant set_rows cpy =cont =cat =t =to =range",
    ),
    (
        Kind::Elementwise,
        "add mul sub div pow sqrt exp where eltwise elementwise max min neg reciprocal bin unary cos sin equal less greater clamp \
         clip abs log mask round floor ceil square scal =and =or =not",
    ),
];

impl Kind {
    /// The kind of an operator by its name in any runtime.
    pub fn of(operator: &str) -> Self {
        if operator == OUTSIDE {
            return Kind::Outside;
        }
        let name = operator.to_lowercase();
        let name = name.rsplit("::").next().unwrap_or_default().trim_start_matches("qlinear");
        let fits = |part: &str| part.strip_prefix('=').map_or_else(|| name.contains(part), |whole| name == whole);
        let found = RULES.iter().find(|(_, parts)| parts.split_whitespace().any(fits));
        found.map_or(Kind::Other, |(kind, _)| *kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_call_the_same_by_different_names() {
        for (kind, names) in [
            (
                Kind::Convolution,
                "Conv FusedConv QLinearConv aten::mkldnn_convolution aten::_convolution Convolution DepthWise",
            ),
            (
                Kind::Matmul,
                "Gemm MatMul FusedMatMul MatMulInteger aten::linear aten::addmm aten::mm FullyConnected OptMatMul EinSum \
                 MUL_MAT MatMulNBits",
            ),
            (
                Kind::Normalisation,
                "LayerNormalization SkipLayerNormalization aten::native_layer_norm aten::batch_norm_ MVN RMS",
            ),
            (
                Kind::Attention,
                "Softmax aten::_softmax MultiHeadAttention aten::scaled_dot_product_attention MHA RotaryEmbedding attn-rot self-attn \
                 FLASH_ATTN_EXT SOFT_MAX",
            ),
            (Kind::Activation, "Relu BiasGelu aten::relu_ aten::silu Sigmoid HardSwish hidden-act SWIGLU"),
            (
                Kind::Pooling,
                "MaxPool GlobalAveragePool aten::max_pool2d_with_indices aten::mean ReduceMean SumPool Pooling",
            ),
            (Kind::Embedding, "Gather aten::embedding aten::index_select GET_ROWS"),
            (
                Kind::Elementwise,
                "Add aten::add_ Mul Eltwise Where OptAddUnicast OptMulByScalar OptBinChain(Add+Mul) QLinearAdd Pow aten::max",
            ),
            (
                Kind::DataMovement,
                "Transpose Reshape ReorderInput aten::copy_ aten::t aten::cat Convert Cast QuantizeLinear Pad SET_ROWS CPY CONT",
            ),
            (Kind::DataMovement, "Resize aten::upsample_bilinear2d"),
            (Kind::Other, "LSTM TopK"),
        ] {
            for name in names.split_whitespace() {
                assert_eq!(Kind::of(name), kind, "{name}");
            }
        }
        assert_eq!(Kind::of(OUTSIDE), Kind::Outside);
    }
}
