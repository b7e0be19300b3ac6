//! In place of `stacks.rs` in builds that cannot sample stacks.

use anyhow::{Result, bail};

use crate::run_data::CpuStacks;

/// A sampler that cannot be started.
pub enum StackSampler {}

impl StackSampler {
    /// # Errors
    /// Always.
    pub fn start() -> Result<Self> {
        if cfg!(feature = "cpu-stacks") {
            bail!("stacks of threads are sampled on Linux and macOS on x86-64 and aarch64 only");
        }
        bail!("this build cannot sample stacks of threads; build it with the Cargo feature cpu-stacks")
    }

    pub fn stop(self) -> Result<CpuStacks> {
        match self {}
    }
}
