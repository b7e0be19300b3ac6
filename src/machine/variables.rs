//! Variables of the environment by which users change what libraries compute with: processors, kernels and memory.

/// How their names begin.
const BEGINNINGS: [&str; 10] =
    ["OMP_", "GOMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "OPENBLAS_", "ATEN_CPU_", "GGML_", "MALLOC_"];
const NAMES: [&str; 10] = [
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "INFERBENCH_LLAMA_SETTINGS",
    "INFERBENCH_QNN_OPTIONS",
];
/// These are left out: each process of a case sets the first two itself, and the last one, which Conda sets, chooses a
/// library but not how it computes.
const WITHOUT_EFFECT: [&str; 3] = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "MKL_INTERFACE_LAYER"];

/// `NAME=VALUE` of each one that is set, by name.
pub(super) fn of_libraries() -> Vec<String> {
    let text = |it: std::ffi::OsString| it.to_string_lossy().into_owned();
    chosen(std::env::vars_os().map(|(name, value)| (text(name), text(value))))
}

fn chosen(all: impl Iterator<Item = (String, String)>) -> Vec<String> {
    let is_meant = |name: &str| {
        let is_known = BEGINNINGS.iter().any(|beginning| name.starts_with(beginning)) || NAMES.contains(&name);
        is_known && !WITHOUT_EFFECT.contains(&name)
    };
    let meant = all.filter(|(name, value)| is_meant(name) && !value.is_empty());
    let mut found: Vec<String> = meant.map(|(name, value)| format!("{name}={value}")).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_case_sets_itself_and_other_variables_are_left_out() {
        let all = ["PATH", "OMP_PROC_BIND", "OMP_NUM_THREADS", "CUDA_HOME", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES"];
        let found = chosen(all.into_iter().map(|name| (name.to_owned(), "1".to_owned())));
        assert_eq!(found, ["CUDA_VISIBLE_DEVICES=1", "LD_PRELOAD=1", "OMP_PROC_BIND=1"]);
        assert_eq!(chosen([("OMP_PROC_BIND".to_owned(), String::new())].into_iter()), [""; 0]);
    }
}
