//! The clock, the calls it times, and what is watched besides. Raw samples are not statistics: those are Criterion's.

mod call_times;
mod disturbance;
mod energy;
pub mod memory;
mod nvml;
pub mod overhead;
pub mod peaks;
mod pilot;

mod sampling;
mod slowed;
mod timed_calls;
mod usage;
mod warm_up;

pub use call_times::{CallTimes, LoggedSamples, LoggedWallTime, SampleLog};
pub use disturbance::DisturbanceWatch;
pub use pilot::pilot;
pub use sampling::Sampling;
pub use slowed::Slowed;
pub use timed_calls::TimedSession;
pub use usage::watch;
pub use warm_up::{WarmUp, WarmUpRule, warm_up};
