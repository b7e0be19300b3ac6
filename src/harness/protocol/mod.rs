//! What a supervisor tells a worker process: the job, a JSON file whose path is in an environment variable.

mod job;
mod preparation;

pub use job::{CallFigures, JOB, Job, Purpose, RoundTerms, WorkItem};
pub use preparation::{Preparations, PreparedKey, prepare_model};
