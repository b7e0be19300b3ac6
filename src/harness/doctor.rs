//! Which conditions of the machine would disturb a measurement, and how to fix them.

use serde::Serialize;

use super::conditions::{BusyProcess, Conditions};

/// A check of the machine, and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    pub subject: &'static str,
    pub state: State,
    pub detail: String,
    /// How to fix it; `None` if there is nothing to fix.
    pub mend: Option<&'static str>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum State {
    Ok,
    /// It would disturb a measurement.
    Warning,
    /// It cannot be determined on this system.
    Unknown,
}

/// The largest fractions of all processors' time that other processes and the hypervisor may use.
const OTHERS_LIMIT: f64 = 0.05;
const STOLEN_LIMIT: f64 = 0.01;
const LEAST_MEMORY_SHARE: f64 = 0.1;

/// A check: its result, `ok` or `warning`, with details. `None` if it cannot be determined.
type Look = fn(&Conditions) -> Option<(State, String)>;

/// All checks with their remedies, ordered by how much the condition usually disturbs.
const LOOKS: [(&str, Look, &str); 11] = [
    (
        "load",
        |seen| judged(seen.others_share? > OTHERS_LIMIT, load(seen.others_share?, &seen.busiest)),
        "end these processes or wait for them",
    ),
    (
        "runs",
        |seen| {
            let is_measuring = seen.is_measuring?;
            let which = if is_measuring { "another" } else { "no other" };
            judged(is_measuring, format!("{which} run is measuring with this target folder"))
        },
        "wait for its end",
    ),
    (
        "steal",
        |seen| {
            let (share, since_start) = (seen.stolen_share?, seen.machine.stolen_share);
            let since = since_start.map(|share| format!(", {} since it started", percent(share))).unwrap_or_default();
            let detail = format!("the hypervisor takes {} of the processors' time{since}", percent(share));
            judged(share > STOLEN_LIMIT, detail)
        },
        "use a machine with processors of its own, or measure when its host is quieter",
    ),
    (
        "hypervisor",
        |seen| match (seen.machine.hypervisor?, seen.machine.hypervisor_name.as_deref().unwrap_or("unnamed")) {
            (false, _) => judged(false, "none"),
            (true, name) => {
                judged(true, format!("a virtual machine ({name}): its host's other guests share caches and clock"))
            }
        },
        "compare only measurements that take turns (`inferbench duel`), or measure without a hypervisor",
    ),
    (
        "governor",
        |seen| match seen.machine.governor.as_deref()? {
            "performance" => judged(false, "performance"),
            other => judged(true, format!("{other}: the processor's frequency follows the load")),
        },
        "sudo cpupower frequency-set --governor performance, or fix the frequency in the firmware",
    ),
    (
        "turbo",
        |seen| match seen.machine.turbo? {
            false => judged(false, "off"),
            true => judged(true, "on: the frequency depends on temperature and on how many cores work"),
        },
        "echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost, or echo 1 | sudo tee \
         /sys/devices/system/cpu/intel_pstate/no_turbo, or turn it off in the firmware",
    ),
    (
        "smt",
        |seen| match seen.machine.smt? {
            false => judged(false, "each processor is a core of its own, as far as the kernel knows"),
            true => judged(true, "two processors share a core and slow each other down"),
        },
        "echo off | sudo tee /sys/devices/system/cpu/smt/control, or use half the threads (--threads)",
    ),
    (
        "variables",
        |seen| match seen.machine.variables.as_ref()?.join(" ") {
            none if none.is_empty() => judged(false, "none that affects the runtimes"),
            found => judged(true, found),
        },
        "unset them, or set the same ones for everything that is compared",
    ),
    (
        "quota",
        |seen| match seen.limits?.processors {
            None => judged(false, "no limit of the processors' time"),
            Some(processors) => {
                let limit = format!("the container may use {processors:.1} processors");
                judged(true, limit + " and is stopped for the rest of each period")
            }
        },
        "give the container whole processors instead of a quota (--cpuset-cpus)",
    ),
    (
        "memory",
        |seen| {
            let all = seen.machine.usable_memory_bytes()?;
            let [available, all] = [seen.available_memory_bytes?, all].map(|it| it as f64 / 1e9);
            judged(available < LEAST_MEMORY_SHARE * all, format!("{available:.1} of {all:.1} GB are free"))
        },
        "end programs that hold much memory, or choose smaller batches",
    ),
    (
        "swap",
        |seen| judged(seen.swapped_pages? > 0, format!("{} pages were swapped in a second", seen.swapped_pages?)),
        "end programs that hold much memory, or sudo swapoff --all",
    ),
];

/// Makes all checks.
pub fn examine(conditions: &Conditions) -> Vec<Finding> {
    let find = |(subject, look, mend): (&'static str, Look, &'static str)| {
        let unseen = || (State::Unknown, "the system does not show it".to_owned());
        let (state, detail) = look(conditions).unwrap_or_else(unseen);
        // The remedies for unknown conditions are commands of Linux.
        let is_mended = state == State::Warning || state == State::Unknown && cfg!(target_os = "linux");
        Finding { subject, state, detail, mend: is_mended.then_some(mend) }
    };
    LOOKS.map(find).into()
}

/// `warning` if it disturbs.
fn judged(disturbs: bool, detail: impl Into<String>) -> Option<(State, String)> {
    Some((if disturbs { State::Warning } else { State::Ok }, detail.into()))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn load(share: f64, busiest: &[BusyProcess]) -> String {
    let name =
        |process: &BusyProcess| format!("{} {} with {:.0} % of one", process.name, process.id, 100.0 * process.share);
    let names: Vec<String> = busiest.iter().map(name).collect();
    let colon = if names.is_empty() { "" } else { ": " };
    format!("others use {} of the processors{colon}{}", percent(share), names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{ContainerLimits, Machine};

    #[test]
    fn what_cannot_be_seen_is_unknown_and_not_well() {
        let findings = examine(&Conditions::default());
        assert!(findings.iter().all(|finding| finding.state == State::Unknown), "{findings:?}");
    }

    #[test]
    fn a_quiet_machine_has_nothing_to_mend() {
        let quiet = Conditions {
            machine: Machine {
                governor: Some("performance".into()),
                turbo: Some(false),
                smt: Some(false),
                hypervisor: Some(false),
                variables: Some(Vec::new()),
                memory_bytes: Some(100),
                ..Machine::default()
            },
            limits: Some(ContainerLimits::default()),
            others_share: Some(0.01),
            stolen_share: Some(0.0),
            swapped_pages: Some(0),
            available_memory_bytes: Some(50),
            is_measuring: Some(false),
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
                variables: Some(vec!["OMP_PROC_BIND=true".into()]),
                memory_bytes: Some(100),
                ..Machine::default()
            },
            limits: Some(ContainerLimits { processors: Some(1.5), memory_bytes: None }),
            others_share: Some(0.45),
            stolen_share: Some(0.02),
            busiest: vec![busy],
            swapped_pages: Some(3),
            available_memory_bytes: Some(9),
            is_measuring: Some(true),
        };
        for finding in examine(&disturbed) {
            assert_eq!(finding.state, State::Warning, "{finding:?}");
            assert!(finding.mend.is_some(), "{finding:?}");
        }
        assert!(examine(&disturbed)[0].detail.contains("cc1plus 7 with 90 % of one"));
    }
}
