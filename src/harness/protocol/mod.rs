//! What a supervisor tells a worker process: the job, a JSON file whose path is in an environment variable.

mod arm;
mod job;
mod preparation;

pub use arm::{ARM_PROTOCOL, ArmAnswer, ArmCase, ArmPlan, ArmReady, ArmStart, Handicap, SliceFigures, WARM_UP};
pub use job::{JOB, Job, Purpose, WorkItem};
pub use preparation::{Preparations, prepare_model};
