//! NVIDIA's management library: memory of this process and its runtimes on a GPU, and the GPU's energy counter.
//!
//! The library is loaded on demand. Without a driver, loading fails at once and costs nothing.

use anyhow::{Context, bail};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::backend::cuda::{DEVICE_ORDER, DRIVER_ORDER};
use crate::definition::{device_index, device_kind};
use crate::machine::processes::own_processes;

/// An NVIDIA GPU.
pub(super) struct Gpu {
    nvml: Nvml,
    name: GpuName,
}

/// How the driver finds a GPU.
#[derive(Debug, PartialEq)]
enum GpuName {
    /// By its place in the order of PCI buses.
    Index(u32),
    /// By its identifier, `GPU-…`.
    Uuid(String),
}

impl Gpu {
    /// The GPU of a device name, such as `cuda`, `cuda:1` or `tensorrt`; `None` for devices that are not NVIDIA's.
    ///
    /// The number is CUDA's. It is the driver's too, because a process for such a device numbers GPUs by their PCI buses, as
    /// the driver does. If `CUDA_VISIBLE_DEVICES` hides or reorders GPUs, it is the place in that list.
    ///
    /// # Errors
    /// There is no driver, or no such GPU, or CUDA numbers several GPUs in another order than the driver.
    pub fn open(device: &str) -> Option<anyhow::Result<Self>> {
        let variable = |name: &str| std::env::var(name).ok();
        let name = driver_name(device, variable("CUDA_VISIBLE_DEVICES").as_deref())?;
        let open = |name| {
            let nvml = Nvml::init()?;
            let order = variable(DEVICE_ORDER);
            if nvml.device_count()? > 1 && order.as_deref() != Some(DRIVER_ORDER) && matches!(name, GpuName::Index(_)) {
                bail!("{DEVICE_ORDER} is not {DRIVER_ORDER}, so that the driver's number of {device} is not known");
            }
            let gpu = Gpu { nvml, name };
            gpu.device().with_context(|| device.to_owned())?;
            Ok(gpu)
        };
        Some(name.and_then(open))
    }

    fn device(&self) -> Result<Device<'_>, NvmlError> {
        match &self.name {
            GpuName::Index(index) => self.nvml.device_by_index(*index),
            GpuName::Uuid(uuid) => self.nvml.device_by_uuid(uuid.as_str()),
        }
    }

    /// Bytes that this process and those that compute for it have allocated there; `None` if the driver does not report
    /// it, as in some containers.
    pub fn own_memory_bytes(&self) -> Option<u64> {
        let own = own_processes();
        let processes = self.device().ok()?.running_compute_processes().ok()?;
        let bytes =
            processes.into_iter().filter(|it| own.contains(&it.pid)).filter_map(|it| match it.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            });
        bytes.reduce(|sum, more| sum + more)
    }

    /// Microjoules since the driver was loaded; an error if the GPU has no such counter.
    pub fn microjoules(&self) -> anyhow::Result<u64> {
        Ok(1000 * self.device()?.total_energy_consumption()?)
    }
}

/// The driver's name of a device; `None` if the device is not NVIDIA's.
fn driver_name(device: &str, visible: Option<&str>) -> Option<anyhow::Result<GpuName>> {
    if !matches!(device_kind(device), "cuda" | "tensorrt") {
        return None;
    }
    let number = device_index(device);
    let Some(list) = visible else { return Some(u32::try_from(number).map(GpuName::Index).map_err(Into::into)) };
    let own = list.split(',').nth(number).map(str::trim).and_then(|own| match own.parse() {
        Ok(index) => Some(GpuName::Index(index)),
        Err(_) => own.starts_with("GPU-").then(|| GpuName::Uuid(own.to_owned())),
    });
    Some(own.with_context(|| format!("CUDA_VISIBLE_DEVICES={list} has no GPU for {device}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_name_is_a_gpu_of_the_driver() {
        let name = |device: &str, visible| driver_name(device, visible).unwrap().ok();
        assert_eq!(name("cuda", None), Some(GpuName::Index(0)));
        assert_eq!(name("tensorrt:1", None), Some(GpuName::Index(1)));
        assert_eq!(name("cuda:1", Some("3,2")), Some(GpuName::Index(2)));
        assert_eq!(name("cuda:1", Some("GPU-1a2b,GPU-3c4d")), Some(GpuName::Uuid("GPU-3c4d".into())));
        assert_eq!(name("cuda:1", Some("0")), None);
        for other in ["cpu", "rocm", "webgpu", "gpu"] {
            assert!(Gpu::open(other).is_none(), "{other}");
        }
    }
}
