//! Which operators compute in f16 and bf16, and which of their inputs stay f32.
//!
//! From the type constraints of ONNX's operator specifications. An operator that is not known to have a type is left in
//! f32, with a cast before and after it.

use crate::definition::Dtype;
use crate::onnx::proto::NodeProto;

/// Whether the node may have inputs and outputs of `dtype`.
pub(super) fn computes_in(node: &NodeProto, dtype: Dtype, opset: i64) -> bool {
    let since = match dtype {
        Dtype::F16 => f16_since(node),
        Dtype::Bf16 => bf16_since(&node.op_type),
        Dtype::F32 | Dtype::I8 => None,
    };
    node.is_standard() && since.is_some_and(|since| opset >= since)
}

/// The first version of ONNX's operator set in which the operator takes f16.
fn f16_since(node: &NodeProto) -> Option<i64> {
    Some(match node.op_type.as_str() {
        "Abs"
        | "Add"
        | "ArgMax"
        | "ArgMin"
        | "AveragePool"
        | "BatchNormalization"
        | "Cast"
        | "Ceil"
        | "Clip"
        | "Concat"
        | "Conv"
        | "ConvTranspose"
        | "DepthToSpace"
        | "Div"
        | "Dropout"
        | "Elu"
        | "Exp"
        | "Flatten"
        | "Floor"
        | "GRU"
        | "Gather"
        | "Gemm"
        | "GlobalAveragePool"
        | "GlobalLpPool"
        | "GlobalMaxPool"
        | "Greater"
        | "HardSigmoid"
        | "Hardmax"
        | "Identity"
        | "InstanceNormalization"
        | "LRN"
        | "LSTM"
        | "LeakyRelu"
        | "Less"
        | "Log"
        | "LogSoftmax"
        | "LpNormalization"
        | "LpPool"
        | "MatMul"
        | "Max"
        | "MaxPool"
        | "MaxRoiPool"
        | "Mean"
        | "Min"
        | "Mul"
        | "Neg"
        | "PRelu"
        | "Pad"
        | "Pow"
        | "RNN"
        | "Reciprocal"
        | "ReduceL1"
        | "ReduceL2"
        | "ReduceLogSum"
        | "ReduceLogSumExp"
        | "ReduceMax"
        | "ReduceMean"
        | "ReduceMin"
        | "ReduceProd"
        | "ReduceSum"
        | "ReduceSumSquare"
        | "Relu"
        | "Reshape"
        | "Selu"
        | "Shape"
        | "Sigmoid"
        | "Size"
        | "Slice"
        | "Softmax"
        | "Softplus"
        | "Softsign"
        | "SpaceToDepth"
        | "Split"
        | "Sqrt"
        | "Squeeze"
        | "Sub"
        | "Sum"
        | "Tanh"
        | "Tile"
        | "TopK"
        | "Transpose"
        | "Unsqueeze" => 1,
        "Acos" | "Asin" | "Atan" | "Cos" | "Sin" | "Tan" => 7,
        "Expand" => 8,
        "Acosh"
        | "Asinh"
        | "Atanh"
        | "Compress"
        | "Cosh"
        | "Erf"
        | "IsNaN"
        | "MaxUnpool"
        | "MeanVarianceNormalization"
        | "NonZero"
        | "OneHot"
        | "Scatter"
        | "Shrink"
        | "Sign"
        | "Sinh"
        | "Where" => 9,
        "Mod" | "Resize" | "ReverseSequence" | "ThresholdedRelu" => 10,
        "Det" | "Equal" | "GatherElements" | "GatherND" | "Round" | "ScatterElements" | "ScatterND" => 11,
        "Einsum" | "GreaterOrEqual" | "LessOrEqual" => 12,
        "CumSum" | "HardSwish" | "Trilu" => 14,
        "CastLike" => 15,
        "GridSample" => 16,
        // The mean and the deviation, where they are asked for, are f32 or bf16.
        "LayerNormalization" if node.outputs.len() == 1 => 17,
        "CenterCropPad" | "Col2Im" | "GroupNormalization" | "Mish" => 18,
        "AffineGrid" | "Gelu" | "IsInf" => 20,
        "Attention" | "RMSNormalization" | "RotaryEmbedding" => 23,
        "Swish" => 24,
        _ => return None,
    })
}

/// The first version of ONNX's operator set in which the operator takes bf16.
fn bf16_since(op_type: &str) -> Option<i64> {
    Some(match op_type {
        "Abs"
        | "Add"
        | "ArgMax"
        | "ArgMin"
        | "Cast"
        | "Ceil"
        | "Clip"
        | "Concat"
        | "DepthToSpace"
        | "Div"
        | "Equal"
        | "Erf"
        | "Exp"
        | "Expand"
        | "Flatten"
        | "Floor"
        | "Gather"
        | "GatherElements"
        | "GatherND"
        | "Gemm"
        | "Greater"
        | "Hardmax"
        | "Identity"
        | "IsNaN"
        | "LRN"
        | "Less"
        | "Log"
        | "LogSoftmax"
        | "MatMul"
        | "Max"
        | "Mean"
        | "MeanVarianceNormalization"
        | "Min"
        | "Mod"
        | "Mul"
        | "Neg"
        | "NonZero"
        | "Pad"
        | "Reciprocal"
        | "ReduceL1"
        | "ReduceL2"
        | "ReduceLogSum"
        | "ReduceLogSumExp"
        | "ReduceMax"
        | "ReduceMean"
        | "ReduceMin"
        | "ReduceProd"
        | "ReduceSum"
        | "ReduceSumSquare"
        | "Relu"
        | "Reshape"
        | "ScatterElements"
        | "ScatterND"
        | "Shape"
        | "Sigmoid"
        | "Sign"
        | "Size"
        | "Slice"
        | "Softmax"
        | "SpaceToDepth"
        | "Split"
        | "Sqrt"
        | "Squeeze"
        | "Sub"
        | "Sum"
        | "Tanh"
        | "Tile"
        | "Transpose"
        | "Unsqueeze" => 13,
        "BatchNormalization" | "CumSum" | "Trilu" => 14,
        "CastLike" | "Pow" => 15,
        "LeakyRelu" | "PRelu" | "Where" => 16,
        "GreaterOrEqual" | "LessOrEqual" => 16,
        "LayerNormalization" => 17,
        "CenterCropPad" | "Col2Im" | "GroupNormalization" => 18,
        "AffineGrid" | "Gelu" | "IsInf" => 20,
        "Acos"
        | "Acosh"
        | "Asin"
        | "Asinh"
        | "Atan"
        | "Atanh"
        | "AveragePool"
        | "Conv"
        | "ConvTranspose"
        | "Cos"
        | "Cosh"
        | "Det"
        | "Dropout"
        | "Elu"
        | "GRU"
        | "GlobalAveragePool"
        | "GlobalLpPool"
        | "GlobalMaxPool"
        | "GridSample"
        | "HardSigmoid"
        | "HardSwish"
        | "InstanceNormalization"
        | "LSTM"
        | "LpNormalization"
        | "LpPool"
        | "MaxPool"
        | "MaxRoiPool"
        | "MaxUnpool"
        | "Mish"
        | "RNN"
        | "Round"
        | "Selu"
        | "Sin"
        | "Sinh"
        | "Softplus"
        | "Softsign"
        | "Tan"
        | "ThresholdedRelu" => 22,
        "Attention" | "RMSNormalization" | "RotaryEmbedding" => 23,
        "Swish" | "TopK" => 24,
        "Einsum" => 28,
        _ => return None,
    })
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
