//! Names of devices: `cpu`, `cuda`, `cuda:1`, and the runtimes' names for what drives one, such as `openvino`.

use anyhow::{Result, bail};

use super::dtype::Dtype;

/// A kind of device, as users name it.
struct Kind {
    name: &'static str,
    /// `cpu`, `gpu` or `npu`: the hardware, unless a runtime reports another.
    device_type: &'static str,
    /// Whether a number may choose one of several.
    is_numbered: bool,
}

const fn kind(name: &'static str, device_type: &'static str, is_numbered: bool) -> Kind {
    Kind { name, device_type, is_numbered }
}

const KINDS: [Kind; 12] = [
    kind("cpu", "cpu", false),
    kind("cuda", "gpu", true),
    kind("tensorrt", "gpu", true),
    kind("rocm", "gpu", true),
    kind("mps", "gpu", false),
    kind("openvino", "cpu", false),
    kind("qnn", "npu", false),
    kind("webgpu", "gpu", false),
    kind("webnn", "npu", false),
    kind("xnnpack", "cpu", false),
    kind("gpu", "gpu", true),
    kind("npu", "npu", false),
];

/// The best device that a backend has here: the first of [`PREFERRED`].
pub const AUTO: &str = "auto";

/// The order in which `auto` looks for a device.
pub const PREFERRED: [&str; 4] = ["cuda", "rocm", "mps", "cpu"];

/// Returns the name if it is that of a device: a kind, and for some a number after a colon.
///
/// # Errors
/// The kind is unknown; the message lists the known ones.
pub fn parse_device(name: &str) -> Result<String> {
    let (kind, number) = split(name);
    let known = KINDS.iter().find(|known| known.name == kind);
    match (known, number) {
        _ if name == AUTO => Ok(name.to_owned()),
        (Some(_), None) => Ok(name.to_owned()),
        (Some(known), Some(number)) if known.is_numbered && number.parse::<u32>().is_ok() => Ok(name.to_owned()),
        _ => {
            let names =
                KINDS.iter().map(|kind| if kind.is_numbered { format!("{}[:n]", kind.name) } else { kind.name.into() });
            bail!("unknown device {name:?}; the devices are {} and {AUTO}", names.collect::<Vec<_>>().join(", "))
        }
    }
}

/// The kind of a device: `cuda` for `cuda:1`.
pub fn device_kind(name: &str) -> &str {
    split(name).0
}

/// The number of a device: 1 for `cuda:1`, and 0 without a number.
pub fn device_index(name: &str) -> usize {
    split(name).1.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The hardware of a device: `cpu`, `gpu` or `npu`. Returns `None` if the kind is unknown.
pub fn device_type(name: &str) -> Option<&'static str> {
    KINDS.iter().find(|known| known.name == device_kind(name)).map(|known| known.device_type)
}

/// The dtype of a case that names none: f32, if the device has it.
pub fn own_dtype(device: &str) -> Dtype {
    // The floating-point unit of Qualcomm's HTP has no other.
    if device_kind(device) == "qnn" { Dtype::F16 } else { Dtype::F32 }
}

fn split(name: &str) -> (&str, Option<&str>) {
    match name.split_once(':') {
        Some((kind, number)) => (kind, Some(number)),
        None => (name, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kinds_with_several_devices_have_numbers() {
        for good in ["cpu", "cuda", "cuda:1", "auto", "webgpu"] {
            assert!(parse_device(good).is_ok(), "{good}");
        }
        for bad in ["gpus", "cpu:1", "cuda:", "cuda:x", "auto:1", ""] {
            assert!(
                parse_device(bad).unwrap_err().to_string().contains("cuda[:n], tensorrt[:n], rocm[:n], mps"),
                "{bad}"
            );
        }
        assert_eq!((device_kind("cuda:1"), device_index("cuda:1"), device_index("cuda")), ("cuda", 1, 0));
        assert_eq!(
            (device_type("rocm:2"), device_type("qnn"), device_type("abacus")),
            (Some("gpu"), Some("npu"), None)
        );
    }
}
