//! Knows which operators compute in f16 and bf16, and which of their inputs stay f32.
//!
//! From the type constraints of ONNX's operator specifications. An operator that is not known to have a type is left in
//! f32, with a cast before and after it.

use crate::definition::Dtype;
use crate::onnx::proto::NodeProto;

/// Operators that take f16, by the first version of ONNX's operator set in which they do.
#[rustfmt::skip]
const F16: &[(i64, &str)] = &[
    (1, "Abs Add ArgMax ArgMin AveragePool BatchNormalization Cast Ceil Clip Concat Conv ConvTranspose DepthToSpace \
        Div Dropout Elu Exp Flatten Floor GRU Gather Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater \
        HardSigmoid Hardmax Identity InstanceNormalization LRN LSTM LeakyRelu Less Log LogSoftmax LpNormalization \
        LpPool MatMul Max MaxPool MaxRoiPool Mean Min Mul Neg PRelu Pad Pow RNN Reciprocal ReduceL1 ReduceL2 \
        ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu \
        Reshape Selu Shape Sigmoid Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tanh \
        Tile TopK Transpose Unsqueeze"),
    (7, "Acos Asin Atan Cos Sin Tan"),
    (8, "Expand"),
    (9, "Acosh Asinh Atanh Compress Cosh Erf IsNaN MaxUnpool MeanVarianceNormalization NonZero OneHot Scatter Shrink \
        Sign Sinh Where"),
    (10, "Mod Resize ReverseSequence ThresholdedRelu"),
    (11, "Det Equal GatherElements GatherND Round ScatterElements ScatterND"),
    (12, "Einsum GreaterOrEqual LessOrEqual"),
    (14, "CumSum HardSwish Trilu"),
    (15, "CastLike"),
    (16, "GridSample"),
    (17, "LayerNormalization"),
    (18, "CenterCropPad Col2Im GroupNormalization Mish"),
    (20, "AffineGrid Gelu IsInf"),
    (23, "Attention RMSNormalization RotaryEmbedding"),
    (24, "Swish"),
];

/// The same for bf16.
#[rustfmt::skip]
const BF16: &[(i64, &str)] = &[
    (13, "Abs Add ArgMax ArgMin Cast Ceil Clip Concat DepthToSpace Div Equal Erf Exp Expand Flatten Floor Gather \
        GatherElements GatherND Gemm Greater Hardmax Identity IsNaN LRN Less Log LogSoftmax MatMul Max Mean \
        MeanVarianceNormalization Min Mod Mul Neg NonZero Pad Reciprocal ReduceL1 ReduceL2 ReduceLogSum \
        ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape \
        ScatterElements ScatterND Shape Sigmoid Sign Size Slice Softmax SpaceToDepth Split Sqrt Squeeze Sub Sum Tanh \
        Tile Transpose Unsqueeze"),
    (14, "BatchNormalization CumSum Trilu"),
    (15, "CastLike Pow"),
    (16, "GreaterOrEqual LeakyRelu LessOrEqual PRelu Where"),
    (17, "LayerNormalization"),
    (18, "CenterCropPad Col2Im GroupNormalization"),
    (20, "AffineGrid Gelu IsInf"),
    (22, "Acos Acosh Asin Asinh Atan Atanh AveragePool Conv ConvTranspose Cos Cosh Det Dropout Elu GRU \
        GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample HardSigmoid HardSwish InstanceNormalization LSTM \
        LpNormalization LpPool MaxPool MaxRoiPool MaxUnpool Mish RNN Round Selu Sin Sinh Softplus Softsign Tan \
        ThresholdedRelu"),
    (23, "Attention RMSNormalization RotaryEmbedding"),
    (24, "Swish TopK"),
    (28, "Einsum"),
];

/// Whether the node may have inputs and outputs of `dtype`.
pub(super) fn computes_in(node: &NodeProto, dtype: Dtype, opset: i64) -> bool {
    let table = match dtype {
        // The mean and the deviation, where they are asked for, are f32 or bf16.
        Dtype::F16 if node.op_type == "LayerNormalization" && node.outputs.len() > 1 => return false,
        Dtype::F16 => F16,
        Dtype::Bf16 => BF16,
        Dtype::F32 | Dtype::I8 => return false,
    };
    let is_named = |names: &str| names.split_ascii_whitespace().any(|name| name == node.op_type);
    node.is_standard() && table.iter().any(|(since, names)| opset >= *since && is_named(names))
}

/// Whether the node's input at this place is f32 whatever the node computes in.
pub(super) fn input_stays_f32(node: &NodeProto, place: usize) -> bool {
    // Regions and scales; the values are the first input.
    node.op_type == "Resize" && place > 0
}

/// Whether the node takes or makes sequences of tensors, or tensors that may be absent.
pub(super) fn works_on_sequences(node: &NodeProto) -> bool {
    node.op_type.contains("Sequence") && node.op_type != "ReverseSequence" || node.op_type.starts_with("Optional")
}
