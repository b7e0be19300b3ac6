//! The facts about a machine, as names and values for readers.

use serde::Serialize;

use crate::machine::Machine;

/// A name and a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    pub name: &'static str,
    pub value: String,
}

/// The facts that are known, in the order of interest.
pub fn facts(host_id: &str, machine: Option<&Machine>) -> Vec<Fact> {
    let mut facts = vec![Fact { name: "host", value: host_id.to_owned() }];
    let Some(machine) = machine else { return facts };
    let gigabytes = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
    let yes_no = |is_so: bool| if is_so { "yes" } else { "no" }.to_owned();
    let hypervisor = match (machine.hypervisor, &machine.hypervisor_name) {
        (_, Some(name)) => Some(name.clone()),
        (is_there, None) => is_there.map(yes_no),
    };
    let system = machine.kernel.as_ref().map_or(machine.os.clone(), |kernel| format!("{} {kernel}", machine.os));
    let known = [
        ("processor", machine.cpu_model.clone()),
        ("logical processors", Some(machine.logical_processors.to_string())),
        ("physical cores", machine.physical_cores.map(|cores| cores.to_string())),
        ("vector extensions", machine.cpu_features.clone()),
        ("caches", machine.caches.clone()),
        ("memory", machine.memory_bytes.map(gigabytes)),
        ("GPUs", machine.gpus.as_ref().filter(|gpus| !gpus.is_empty()).map(|gpus| gpus.join(", "))),
        ("GPU driver", machine.gpu_driver.clone()),
        ("system", Some(system)),
        ("architecture", Some(machine.architecture.clone())),
        ("hypervisor", hypervisor),
        ("simultaneous multithreading", machine.smt.map(yes_no)),
        ("turbo", machine.turbo.map(yes_no)),
        ("governor", machine.governor.clone()),
        ("container's processors", machine.container_processors.map(|count| count.to_string())),
        ("container's memory", machine.container_memory_bytes.map(gigabytes)),
        ("load average", machine.load_average.map(|load| format!("{load:.2}"))),
        ("stolen time", machine.stolen_share.map(|share| format!("{:.1} %", 100.0 * share))),
    ];
    facts.extend(known.into_iter().filter_map(|(name, value)| Some(Fact { name, value: value? })));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_left_out() {
        let machine = Machine {
            cpu_model: Some("A CPU".into()),
            memory_bytes: Some(1_500_000_000),
            gpus: Some(Vec::new()),
            ..Machine::default()
        };
        let named =
            |name: &str| facts("1a", Some(&machine)).into_iter().find(|fact| fact.name == name).map(|fact| fact.value);
        assert_eq!(named("memory").as_deref(), Some("1.5 GB"));
        assert_eq!((named("GPUs"), named("turbo")), (None, None));
        assert_eq!(facts("1a", None).len(), 1);
    }
}
