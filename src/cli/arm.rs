//! `inferbench arm`: one arm's part of a duel. `inferbench duel` calls it; users do not.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::definition::Suite;
use crate::exit_codes;
use crate::harness::{ArmRequest, Handicap, Request, plan_arms, profile, run_arm};
use crate::paths::Paths;

/// Do an arm's part of a duel
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand)]
enum Part {
    /// Compare the outputs once, write a job per case, and print them as one JSON document
    Plan(Box<ArmRequest>),
    /// Profile one case, and print the profile as one line of JSON
    Profile {
        #[command(flatten)]
        request: Box<ArmRequest>,
        #[arg(long, value_name = "ID")]
        case: String,
    },
    /// Load a job's case, and time a slice for each line `slice NANOSECONDS` of the standard input
    Time {
        #[arg(value_name = "JOB")]
        job: PathBuf,
        /// Make every call longer by this many millionths
        #[arg(long, value_name = "N")]
        slowdown_ppm: Option<u32>,
        /// Let every call take at least this many nanoseconds, before it is slowed down
        #[arg(long, value_name = "N", default_value = "0", requires = "slowdown_ppm")]
        least_call_ns: u64,
        /// Load on these processors and wait to be told to warm up
        #[arg(long, value_delimiter = ',', value_name = "N,…")]
        load_on: Vec<usize>,
    },
}

pub fn run(arguments: &Arguments, own_suite: Option<&Suite>) -> anyhow::Result<u8> {
    match &arguments.part {
        Part::Plan(plan) => println!("{}", serde_json::to_string(&plan_arms(&Paths::find(), own_suite, plan)?)?),
        Part::Profile { request, case } => {
            let of_flags = Request::of(request.selection.clone(), &request.effort, None);
            let criterion_arguments = ["--bench", "--exact", case].map(str::to_owned).into();
            let request = Request { own_suite: own_suite.cloned(), criterion_arguments, ..of_flags };
            println!("{}", serde_json::to_string(&profile(&Paths::find(), &request, false, |_| ())?)?);
        }
        Part::Time { job, slowdown_ppm, least_call_ns, load_on } => {
            let handicap = |ppm| Handicap { slowdown_ppm: ppm, least_call_ns: *least_call_ns };
            run_arm(job, slowdown_ppm.map(handicap), load_on)?;
        }
    }
    Ok(exit_codes::OK)
}
