//! Names of backends as people write them.

/// The backend that computes nothing: it measures what the harness itself costs.
pub const NULL: &str = "null";

/// The backends that run a library, by the library's names.
const LIBRARIES: [(&str, &str); 6] = [
    ("onnxruntime", "ort"),
    ("onnx-runtime", "ort"),
    ("onnx_runtime", "ort"),
    ("pytorch", "tch"),
    ("torch", "tch"),
    ("libtorch", "tch"),
];

/// The name of a backend as in ids and records: `ort` for `ONNXRuntime`, and other names in lower case.
pub fn backend_name(name: &str) -> String {
    let name = name.to_lowercase();
    let library = LIBRARIES.iter().find(|(library, _)| *library == name);
    library.map_or(name, |(_, backend)| (*backend).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_is_known_by_its_library() {
        let names = ["ort", "OnnxRuntime", "onnx-runtime", "pytorch", "torch", "Candle", "abacus"].map(backend_name);
        assert_eq!(names, ["ort", "ort", "ort", "tch", "tch", "candle", "abacus"]);
    }
}
