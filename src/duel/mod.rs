//! A duel: a paired (duet) benchmark of programs on this machine. Which one is faster, and is that sure?
//!
//! It takes programs that answer as arms, and the cases to compare. It gives the journal of their slices, and from it
//! the result of a duel. What an arm does is in `harness`, and the statistics are in `compare`.
//!
//! ```text
//! program (build, worktree) ─▶ planning (pairing) ─▶ driver (pilot, generation, arm) ─▶ compare::duet
//!                                                       └▶ journal
//! ```
//!
//! Three arms or more run one case: the base, the base again as a null control, and each candidate. A *generation* starts a
//! fresh process per arm; the driver lets one of them at a time measure a slice of calls, in random order, while the others
//! are stopped. The statistics are those of [`compare`](crate::compare).

mod arm;
mod build;
mod conclusion;
mod driver;
mod foresight;
mod generation;
mod journal;
mod pairing;
mod pilot;
mod planning;
mod profile;
mod program;
mod self_duel;
mod terms;
mod worktree;

pub use build::{BuildFlags, package_folder};
pub use driver::duel_between;
pub use profile::{profile_slower, shows_slow_down};
pub use program::resolve_all;
pub use self_duel::measure_gate;
pub use terms::Terms;
