//! Environment variables of processes that compute with CUDA.

use std::ffi::OsString;

use crate::definition::device_kind;

/// The variable that sets the order in which CUDA numbers GPUs.
pub const DEVICE_ORDER: &str = "CUDA_DEVICE_ORDER";
/// Its value for the order of NVIDIA's driver; CUDA's own default is the fastest GPU first.
pub const DRIVER_ORDER: &str = "PCI_BUS_ID";

/// Turns TensorFloat-32 off, and numbers GPUs as NVIDIA's driver does unless the user has chosen an order. Empty for
/// devices other than CUDA's.
pub(super) fn cuda_environment(device: &str) -> Vec<(&'static str, OsString)> {
    if !matches!(device_kind(device), "cuda" | "tensorrt") {
        return Vec::new();
    }
    // With TensorFloat-32, the dtype would be f32 only by name.
    let mut variables = vec![("NVIDIA_TF32_OVERRIDE", "0".into())];
    if std::env::var_os(DEVICE_ORDER).is_none() {
        variables.push((DEVICE_ORDER, DRIVER_ORDER.into()));
    }
    variables
}
