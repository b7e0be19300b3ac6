//! What of the machine's conditions would disturb a measurement, and how to mend it.

use serde::Serialize;

use super::conditions::{BusyProcess, Conditions};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    pub subject: &'static str,
    pub state: State,
    pub detail: String,
    /// Absent where there is nothing to mend.
    pub mend: Option<&'static str>,
}

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Ok,
    /// It would disturb.
    Warning,
    /// It cannot be seen here.
    Unknown,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Warning => "warning",
            State::Unknown => "unknown",
        }
    }
}

/// Others may use that part of all processors, and the hypervisor may take that.
const OTHERS_LIMIT: f64 = 0.05;
const STOLEN_LIMIT: f64 = 0.01;
const LEAST_MEMORY_SHARE: f64 = 0.1;

/// Examines everything, in the order of how much it usually disturbs.
pub fn examine(conditions: &Conditions) -> Vec<Finding> {
    vec![
        load(conditions),
        runs(conditions),
        steal(conditions),
        hypervisor(conditions),
        governor(conditions),
        turbo(conditions),
        smt(conditions),
        quota(conditions),
        memory(conditions),
        swap(conditions),
    ]
}

fn ok(subject: &'static str, detail: impl Into<String>) -> Finding {
    Finding { subject, state: State::Ok, detail: detail.into(), mend: None }
}

fn warning(subject: &'static str, detail: impl Into<String>, mend: &'static str) -> Finding {
    Finding { subject, state: State::Warning, detail: detail.into(), mend: Some(mend) }
}

fn unknown(subject: &'static str, detail: impl Into<String>, mend: &'static str) -> Finding {
    Finding { subject, state: State::Unknown, detail: detail.into(), mend: Some(mend) }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn load(conditions: &Conditions) -> Finding {
    let Some(share) = conditions.others_share else {
        return unknown("load", "/proc/stat cannot be read", "measure on Linux");
    };
    let name =
        |process: &BusyProcess| format!("{} {} with {:.0} % of one", process.name, process.id, 100.0 * process.share);
    let names: Vec<String> = conditions.busiest.iter().map(name).collect();
    let detail = format!("others use {} of the processors", percent(share));
    let detail = if names.is_empty() { detail } else { format!("{detail}: {}", names.join(", ")) };
    if share > OTHERS_LIMIT {
        warning("load", detail, "end these processes or wait for them")
    } else {
        ok("load", detail)
    }
}

fn runs(conditions: &Conditions) -> Finding {
    if conditions.is_measuring {
        return warning("runs", "another run is measuring with this target folder", "wait for its end");
    }
    let ids: Vec<String> = conditions.other_runs.iter().map(u32::to_string).collect();
    if ids.is_empty() {
        return ok("runs", "no other inferbench is running");
    }
    warning("runs", format!("another inferbench is running: process {}", ids.join(", ")), "wait for its end")
}

fn steal(conditions: &Conditions) -> Finding {
    let Some(share) = conditions.stolen_share else {
        return unknown("steal", "/proc/stat cannot be read", "measure on Linux");
    };
    let since = conditions.machine.stolen_share.map(|share| format!(", {} since it started", percent(share)));
    let detail =
        format!("the hypervisor takes {} of the processors' time{}", percent(share), since.unwrap_or_default());
    if share > STOLEN_LIMIT {
        warning("steal", detail, "use a machine with processors of its own, or measure when its host is quieter")
    } else {
        ok("steal", detail)
    }
}

fn hypervisor(conditions: &Conditions) -> Finding {
    let mend = "compare only what is measured in turn, or measure without a hypervisor";
    match conditions.machine.hypervisor {
        Some(true) => {
            let name = conditions.machine.hypervisor_name.as_deref().unwrap_or("unnamed");
            warning(
                "hypervisor",
                format!("a virtual machine ({name}): its host's other guests share caches and clock"),
                mend,
            )
        }
        Some(false) => ok("hypervisor", "none"),
        None => unknown("hypervisor", "the processor does not tell", mend),
    }
}

fn governor(conditions: &Conditions) -> Finding {
    match conditions.machine.governor.as_deref() {
        Some("performance") => ok("governor", "performance"),
        Some(other) => warning(
            "governor",
            format!("{other}: the processor's frequency follows the load"),
            "sudo cpupower frequency-set --governor performance",
        ),
        None => unknown(
            "governor",
            "the kernel shows no frequency scaling: the frequency may change unseen",
            "fix the frequency on the host or in the firmware",
        ),
    }
}

fn turbo(conditions: &Conditions) -> Finding {
    match conditions.machine.turbo {
        Some(false) => ok("turbo", "off"),
        Some(true) => warning(
            "turbo",
            "on: the frequency depends on temperature and on how many cores work",
            "echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost, or echo 1 | sudo tee \
             /sys/devices/system/cpu/intel_pstate/no_turbo",
        ),
        None => unknown("turbo", "the kernel does not show it", "turn it off on the host or in the firmware"),
    }
}

fn smt(conditions: &Conditions) -> Finding {
    match conditions.machine.smt {
        Some(false) => ok("smt", "each processor is a core of its own, as far as the kernel knows"),
        Some(true) => warning(
            "smt",
            "two processors share a core and slow each other down",
            "echo off | sudo tee /sys/devices/system/cpu/smt/control, or use half the threads (--threads)",
        ),
        None => unknown("smt", "the kernel does not show it", "use as many threads as there are cores (--threads)"),
    }
}

fn quota(conditions: &Conditions) -> Finding {
    let Some(limits) = conditions.limits else {
        return unknown("quota", "no control group of version 2 can be read", "start containers without --cpus");
    };
    match limits.processors {
        None => ok("quota", "no limit of the processors' time"),
        Some(processors) => warning(
            "quota",
            format!("the container may use {processors:.1} processors and is stopped for the rest of each period"),
            "give it whole processors instead of a quota (--cpuset-cpus)",
        ),
    }
}

fn memory(conditions: &Conditions) -> Finding {
    let mend = "end what holds memory, or choose smaller batches";
    let Some((available, all)) = conditions.available_memory_bytes.zip(conditions.machine.memory_bytes) else {
        return unknown("memory", "/proc/meminfo cannot be read", mend);
    };
    let detail = format!("{:.1} of {:.1} GB are free", available as f64 / 1e9, all as f64 / 1e9);
    if (available as f64) < LEAST_MEMORY_SHARE * all as f64 {
        warning("memory", detail, mend)
    } else {
        ok("memory", detail)
    }
}

fn swap(conditions: &Conditions) -> Finding {
    let mend = "end what holds memory, or sudo swapoff --all";
    match conditions.swapped_pages {
        None => unknown("swap", "/proc/vmstat cannot be read", mend),
        Some(0) => ok("swap", "nothing was swapped"),
        Some(pages) => warning("swap", format!("{pages} pages were swapped in a second"), mend),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{ContainerLimits, Machine};

    fn state(conditions: &Conditions, subject: &str) -> State {
        examine(conditions).into_iter().find(|finding| finding.subject == subject).unwrap().state
    }

    #[test]
    fn what_cannot_be_seen_is_unknown_and_not_well() {
        let findings = examine(&Conditions::default());
        let known: Vec<_> = findings.iter().filter(|finding| finding.state != State::Unknown).collect();
        assert_eq!(known.iter().map(|finding| finding.subject).collect::<Vec<_>>(), ["runs"]);
    }

    #[test]
    fn a_quiet_machine_has_nothing_to_mend() {
        let quiet = Conditions {
            machine: Machine {
                governor: Some("performance".into()),
                turbo: Some(false),
                smt: Some(false),
                hypervisor: Some(false),
                memory_bytes: Some(100),
                ..Machine::default()
            },
            limits: Some(ContainerLimits::default()),
            others_share: Some(0.01),
            stolen_share: Some(0.0),
            swapped_pages: Some(0),
            available_memory_bytes: Some(50),
            ..Conditions::default()
        };
        assert!(examine(&quiet).iter().all(|finding| finding.state == State::Ok && finding.mend.is_none()));
    }

    #[test]
    fn each_disturbance_is_a_warning_with_a_remedy() {
        let busy = BusyProcess { id: 7, name: "cc1plus".into(), share: 0.9 };
        let disturbed = Conditions {
            machine: Machine {
                governor: Some("powersave".into()),
                turbo: Some(true),
                smt: Some(true),
                hypervisor: Some(true),
                memory_bytes: Some(100),
                ..Machine::default()
            },
            limits: Some(ContainerLimits { processors: Some(1.5), memory_bytes: None }),
            others_share: Some(0.45),
            stolen_share: Some(0.02),
            busiest: vec![busy],
            swapped_pages: Some(3),
            available_memory_bytes: Some(9),
            other_runs: vec![8],
            is_measuring: false,
        };
        for finding in examine(&disturbed) {
            assert_eq!(finding.state, State::Warning, "{finding:?}");
            assert!(finding.mend.is_some(), "{finding:?}");
        }
        assert!(examine(&disturbed)[0].detail.contains("cc1plus 7 with 90 % of one"));
        assert_eq!(state(&Conditions { is_measuring: true, ..disturbed }, "runs"), State::Warning);
    }
}
