//! The clock, the calls it times, and what is watched besides. Raw samples are not statistics: those are Criterion's.
//!
//! It takes a session and its inputs. It gives the times of calls, with the memory, energy and load during them.
//! `harness` decides which cases run, and in which process.

pub mod calibration;
mod call_times;
mod disturbance;
mod energy;
pub mod memory;
mod nvml;
pub mod overhead;
pub mod peaks;
mod pipeline;
mod profile;
mod sampling;
pub mod serving;
#[cfg_attr(
    not(all(
        feature = "cpu-stacks",
        any(target_os = "linux", target_os = "macos"),
        any(target_arch = "x86_64", target_arch = "aarch64")
    )),
    path = "no_stacks.rs"
)]
mod stacks;
mod timed_calls;
mod unwinding;
mod usage;
mod warm_up;

pub use call_times::{CallTimes, LoggedSamples, SampleLog};
pub use energy::EnergyMeter;
pub use pipeline::{CallParts, Pipeline};
pub use profile::profile;
pub use sampling::{Sampling, pilot};
pub use stacks::StackSampler;
pub use timed_calls::TimedSession;
pub use unwinding::unwinding;
pub use usage::watch;
pub use warm_up::{WarmUp, warm_up};
