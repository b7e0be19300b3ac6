//! The peaks of this machine, as if it had been measured.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use inferbench::machine::Machine;
use inferbench::run_data::Peaks;
use sha2::{Digest, Sha256};

/// The machines that tests claim to be by `INFERBENCH_HOST_ID`.
const CLAIMED: [&str; 3] = ["aaaa1111", "bbbb2222", "cccc3333"];

/// The file of the peaks. Beside other tests each run would measure them again, since they are disturbed.
pub fn file() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let machine = Machine::read();
        let (version, cpu) = (env!("CARGO_PKG_VERSION"), machine.cpu_model.as_deref().unwrap_or_default());
        let id = |name: &str| -> String {
            let hash = Sha256::digest(format!("inferbench {name} {cpu}"));
            hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
        };
        let mut all = BTreeMap::new();
        for host_id in CLAIMED.map(id).into_iter().chain([machine.host_id.clone()]) {
            for threads in 1..=2 * machine.logical_processors {
                let peaks = Peaks {
                    threads,
                    product_gflops_per_second: 100.0 * threads as f64,
                    copy_gb_per_second: 20.0,
                    copied_bytes: 1 << 27,
                    disturbed_share: Some(0.0),
                };
                all.insert(format!("{host_id} {cpu}, {threads} threads, inferbench {version}, method 2"), peaks);
            }
        }
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peaks.json");
        fs::write(&path, serde_json::to_vec(&all).unwrap()).unwrap();
        path
    })
}
