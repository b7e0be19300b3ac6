//! Makes runs: the only code that drives Criterion.
//!
//! It takes a plan of cases. It gives the folder of a run: Criterion's files, calls, outcomes. It does not read the
//! history (`history`), and of all results it shows only profiles (`report`).
//!
//! `cargo bench` and `inferbench run` both end up in `run`. It plans the cases, prepares their artifacts, writes the run's
//! manifest, and lets a supervisor start this executable once more for each backend and device; such a worker process does its
//! job in [`run_as_worker`].

mod activation_ranges;
mod arm_plan;
mod asked_cases;
mod bench;
mod conditions;
mod doctor;
mod expected_time;
mod input_sizes;
mod load;
mod lock;
mod manifest;
mod plan;
mod profile;
mod protocol;
mod run;
mod shard;
mod supervisor;
mod worker;

pub use arm_plan::{ArmRequest, plan_arms};
pub use asked_cases::NoCase;
pub use bench::{PATH_VARIABLES, bench_main, bench_request, load_main, run_as_worker, say_misspelled_variables};
pub use conditions::{Conditions, say_variables};
pub use doctor::{Finding, State, examine};
pub use load::{Split, load, note_found, splits};
pub use lock::{BUSY, keep_others_out};
pub use plan::{Plan, Request, asked_suite, make_plan};
pub use profile::profile;
pub use protocol::{
    ARM_PROTOCOL, ArmAnswer, ArmCase, ArmPlan, ArmReady, ArmStart, Handicap, Purpose, SliceFigures, WARM_UP,
    prepare_model,
};
pub use run::{FinishedRun, exit_code_of, run};
pub use shard::{Division, divide};
pub use supervisor::{Interrupted, is_interrupted, is_interrupted_with, wait_for};
pub use worker::{Answer, Scorer, register_scorers, run_arm};
