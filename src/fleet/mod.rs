//! A suite over many machines: puts the parts together that machines have measured, and starts parts where others schedule them.
//!
//! It takes the parts of a suite that machines have measured. It gives one run. A part is planned by `harness`, and
//! measured by `inferbench run` as any other run.
//!
//! `inferbench shard` writes the parts, which `harness` plans, `run --shard` measures one, and `inferbench merge` makes one run of the history of
//! what they left.

mod merge;
mod slurm;
mod ssh;

pub use merge::{Merged, find_parts, merge, publish};
pub use slurm::{Array, submit};
pub use ssh::{Host, measure};
