//! OpenVINO through the `openvino` crate: ONNX graphs, read and compiled by OpenVINO itself.
//!
//! The library is loaded at run time from `INFERBENCH_OPENVINO_LIBRARY` or `.native/openvino`. OpenVINO makes each precision
//! out of the f32 graph. A graph is compiled for one stream with the threads and the precision of the case, because
//! OpenVINO's default is a reduced precision if the processor is faster with it. The record holds what OpenVINO then reports.
//!
//! Tensors lie in the memory of the host. A device with memory of its own copies them within the call.

mod graph;
mod library;
mod tensor;

use once_cell::sync::OnceCell;

use self::graph::{Graph, OpenVinoRuntime};
use self::library::{DEVICES, build_number, core, find_devices};
use crate::backend::artifact::{Format, check_artifact, parts_of};
use crate::backend::graphs::open_session;
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, Session, Versions};
use crate::definition::{CaseFailure, Dtype, Model};

pub struct OpenVino;

/// The `openvino` release in `Cargo.toml`, which is pinned there.
const CRATE_VERSION: &str = "0.11.1";

impl Backend for OpenVino {
    fn devices(&self) -> Vec<DeviceReport> {
        static FOUND: OnceCell<Vec<DeviceReport>> = OnceCell::new();
        FOUND.get_or_init(find_devices).clone()
    }

    fn versions(&self, _device: &str) -> Versions {
        let release = build_number().ok().and_then(|number| number.split('-').next()).unwrap_or_default();
        Versions { backend: CRATE_VERSION.into(), library: release.into() }
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        if dtype == Dtype::I8 {
            return Err(CaseFailure::unsupported("OpenVINO computes in f32, f16 or bf16, as it is told"));
        }
        check_artifact(model, dtype, &[Dtype::F32, Dtype::F16, Dtype::Bf16], Format::Onnx)
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        if !DEVICES.contains(&request.device) {
            return Err(CaseFailure::unavailable(format!("openvino has no device {:?}", request.device)));
        }
        let mut core = core()?;
        let runtime = OpenVinoRuntime::new(&mut core, request)?;
        let parts = parts_of(request, Format::Onnx)?;
        let graphs = parts.iter().map(|(part, file)| Graph::read(&mut core, part, file));
        let graphs = graphs.collect::<Result<Vec<_>, _>>()?;
        let placement = runtime.placement.clone();
        open_session(request, runtime, &parts, graphs, placement)
    }
}
