//! Calls of a model by ONNX Runtime, as tango-bench measures them. In an executable whose name ends in `-slow-N`, each takes N per
//! cent longer.

use std::hint::spin_loop;
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use ort::session::Session;
use ort::value::Tensor;
use tango_bench::{IntoBenchmarks, benchmark_fn, tango_benchmarks};

/// Tango asks for a benchmark's function many times, and a process has one session.
static SESSION: LazyLock<Mutex<Session>> = LazyLock::new(|| {
    let environment = ort::init_from(variable("TANGO_ONNXRUNTIME")).expect("ONNX Runtime").build();
    let options = Session::builder(&environment.expect("an environment")).expect("options");
    let threads = variable("TANGO_THREADS").parse().expect("a number of threads");
    let mut options = options.with_intra_threads(threads).expect("threads");
    Mutex::new(options.commit_from_file(variable("TANGO_MODEL")).expect("a session"))
});

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

fn slowdown() -> f64 {
    let own = std::env::current_exe().expect("the own executable");
    let name = own.file_name().expect("a name").to_string_lossy().into_owned();
    name.rsplit_once("-slow-").map_or(0.0, |(_, percent)| percent.parse::<f64>().expect("a percentage") / 100.0)
}

fn benchmarks() -> impl IntoBenchmarks {
    [benchmark_fn("model", |bencher| {
        let session = &*SESSION;
        let input = Tensor::from_array(([1_usize, 1, 8, 8], vec![0.5_f32; 64])).expect("a tensor");
        let factor = 1.0 + slowdown();
        bencher.iter(move || {
            let begin = Instant::now();
            session.lock().expect("the session").run(ort::inputs![&input]).expect("a call");
            let until = begin.elapsed().mul_f64(factor);
            while begin.elapsed() < until {
                spin_loop();
            }
        })
    })]
}

tango_benchmarks!(benchmarks());
