//! NVIDIA's management library, where a driver is: memory of this process on a GPU, and the GPU's energy counter.
//!
//! The library is loaded when it is asked for; without a driver that is an error at once and costs nothing.

use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;

/// One GPU.
pub(super) struct Gpu {
    nvml: Nvml,
    index: u32,
}

impl Gpu {
    /// The GPU of a device name, `cuda` or `cuda:1`; none for other devices.
    ///
    /// The number is that of the driver. Where `CUDA_VISIBLE_DEVICES` hides or reorders GPUs, it is the place in that list.
    ///
    /// # Errors
    /// There is no driver, or no such GPU.
    pub fn open(device: &str) -> Option<Result<Self, String>> {
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let index = driver_index(device, visible.as_deref())?;
        let open = |index| {
            let nvml = Nvml::init().map_err(|error| error.to_string())?;
            nvml.device_by_index(index).map_err(|error| format!("GPU {index}: {error}"))?;
            Ok(Gpu { nvml, index })
        };
        Some(index.and_then(open))
    }

    /// What this process has allocated there; absent where the driver does not tell, as in some containers.
    pub fn own_memory_bytes(&self) -> Option<u64> {
        let own = std::process::id();
        let processes = self.nvml.device_by_index(self.index).ok()?.running_compute_processes().ok()?;
        processes.into_iter().filter(|process| process.pid == own).find_map(|process| match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        })
    }

    /// Microjoules since the driver was loaded.
    pub fn microjoules(&self) -> Result<u64, String> {
        let device = self.nvml.device_by_index(self.index).map_err(|error| error.to_string())?;
        device.total_energy_consumption().map(|millijoules| 1000 * millijoules).map_err(|error| error.to_string())
    }
}

/// The driver's number of a device, where it is a GPU of CUDA's.
fn driver_index(device: &str, visible: Option<&str>) -> Option<Result<u32, String>> {
    let rest = device.strip_prefix("cuda")?;
    let number = if rest.is_empty() { "0" } else { rest.strip_prefix(':')? };
    let number: usize = number.parse().ok()?;
    Some(match visible {
        None => Ok(number as u32),
        Some(list) => {
            let missing = || format!("CUDA_VISIBLE_DEVICES={list} has no number for {device}");
            list.split(',').nth(number).and_then(|own| own.trim().parse().ok()).ok_or_else(missing)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_name_is_a_gpu_of_the_driver() {
        assert_eq!(driver_index("cpu", None), None);
        assert_eq!(driver_index("cuda", None), Some(Ok(0)));
        assert_eq!(driver_index("cuda:1", Some("3,2")), Some(Ok(2)));
        assert!(driver_index("cuda:1", Some("GPU-1a2b,GPU-3c4d")).unwrap().is_err());
        assert!(Gpu::open("cpu").is_none());
    }
}
