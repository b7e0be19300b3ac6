//! The answer to a request for one measurement.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use crate::run_data::Record;

/// The result of a measurement. The first fields repeat what most callers need of the record.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Answer {
    /// Always `success`.
    pub status: &'static str,
    pub model: String,
    /// `ONNX Runtime`, `PyTorch`, `candle`, …
    pub framework: String,
    /// Mean time of a call.
    pub avg_inference_time_ms: Option<f64>,
    pub throughput_samples_per_sec: Option<f64>,
    /// The shapes of the inputs: a list of sizes, or a list of such lists if there are several inputs.
    pub input_shape: serde_json::Value,
    /// The execution providers of ONNX Runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub providers: Option<Vec<String>>,
    /// The number of the model's parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
    pub device: String,
    /// The number of measured calls.
    pub iterations: Option<usize>,
    /// The run in the history.
    pub run: String,
    /// Whether the answer comes from an earlier measurement, which `max_age` allowed.
    pub is_from_history: bool,
    /// The whole row: percentiles with bounds, memory, whether the outputs were right.
    pub record: Record,
}

impl Answer {
    pub fn new(record: Record, is_from_history: bool) -> Self {
        let providers = record.providers.as_ref().filter(|_| record.framework == "onnxruntime");
        Answer {
            status: "success",
            model: record.model.clone(),
            framework: framework(&record.framework),
            avg_inference_time_ms: record.latency_mean_ms,
            throughput_samples_per_sec: record.throughput_ips,
            input_shape: shape(record.input_shape.as_deref().unwrap_or_default()),
            providers: providers
                .map(|names| names.split([',', ' ']).filter(|it| !it.is_empty()).map(String::from).collect()),
            parameters: record.parameters,
            device: record.device.clone(),
            iterations: record.iterations,
            run: record.run_id.clone(),
            is_from_history,
            record,
        }
    }
}

/// The name of a framework as its makers write it.
fn framework(name: &str) -> String {
    match name {
        "onnxruntime" => "ONNX Runtime",
        "pytorch" => "PyTorch",
        "openvino" => "OpenVINO",
        name => name,
    }
    .into()
}

/// `1x3x224x224` as `[1, 3, 224, 224]`; a size that changes from call to call, such as `5..9`, stays a text.
fn shape(text: &str) -> serde_json::Value {
    let size = |size: &str| size.parse::<u64>().map_or_else(|_| size.into(), serde_json::Value::from);
    let of_input =
        |input: &str| -> serde_json::Value { input.split('x').filter(|it| !it.is_empty()).map(size).collect() };
    let mut shapes: Vec<serde_json::Value> = text.split(' ').map(of_input).collect();
    if shapes.len() == 1 { shapes.remove(0) } else { shapes.into() }
}

/// A response in JSON.
pub fn json(value: &impl Serialize) -> Response {
    // Only a map with keys that are not strings could fail, and there is none here.
    let mut text = serde_json::to_vec_pretty(value).unwrap_or_default();
    text.push(b'\n');
    bytes(text, "application/json")
}

/// A response of this content type.
pub fn bytes(content: impl Into<Body>, kind: &'static str) -> Response {
    let mut response = Response::new(content.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::shape;

    #[test]
    fn shapes_are_lists_of_sizes() {
        assert_eq!(shape("1x3x224x224"), json!([1, 3, 224, 224]));
        assert_eq!(shape("1x128 1x5..9"), json!([[1, 128], [1, "5..9"]]));
        assert_eq!(shape(""), json!([]));
    }
}
