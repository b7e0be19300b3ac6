//! One suite on many machines: starts its parts by Slurm or ssh, and merges what the machines have measured.
//!
//! It takes the parts of a suite that machines have measured. It gives one run.
//!
//! `harness` plans the parts, and `inferbench shard` writes them. `inferbench run` measures a part like any other run.
//! `inferbench merge` makes one run of the history from them.

mod merge;
mod slurm;
mod ssh;

pub use merge::{Merged, find_parts, merge, publish};
pub use slurm::{Array, submit};
pub use ssh::{Host, measure};
