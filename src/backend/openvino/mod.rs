//! OpenVINO through the `openvino` crate: ONNX graphs, read and compiled by OpenVINO itself.
//!
//! The library is loaded at run time: named by `INFERBENCH_OPENVINO_LIBRARY`, in a Python environment, or from
//! `inferbench setup`. OpenVINO makes f16 and bf16 from the f32 graph. Quantised graphs compute in i8, which OpenVINO's
//! profiler has to show. A graph is compiled with the threads and the precision of the case, because OpenVINO's
//! default is a lower precision if the processor is faster with it. The record holds what OpenVINO then reports.
//!
//! Tensors are in host memory. A device with its own memory copies them within each call.

mod graph;
mod library;
mod lost_bias;
mod profile;
mod tasks;
mod tensor;
mod trace;

use std::path::{Path, PathBuf};

use once_cell::sync::OnceCell;

use self::graph::{Graph, OpenVinoRuntime};
use self::library::{DEVICES, build_number, core, describe, find_devices, library, own_name, use_place};
use self::profile::Profiled;
use crate::backend::artifact::{Format, check_graphs, dequantised, parts_of};
use crate::backend::graphs::open_session;
use crate::backend::installed::Origin;
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, ProfiledSession, Session, Trace};
use crate::backend::recorder::RecordedSession;
use crate::definition::{CaseFailure, Dtype, Model};
use crate::fixture::HostTensor;

/// OpenVINO: the default one, or the one in a Python environment.
pub struct OpenVino {
    pub place: Option<&'static Path>,
}

impl Backend for OpenVino {
    fn devices(&self) -> Vec<DeviceReport> {
        static FOUND: OnceCell<Vec<DeviceReport>> = OnceCell::new();
        match library(self.place) {
            Ok(library) if library.origin == Origin::Setup => FOUND.get_or_init(find_devices).clone(),
            found => {
                let found = found.map(|library| library.path.display().to_string());
                DEVICES.map(|device| DeviceReport::probed(device, found.clone())).into()
            }
        }
    }

    fn probe(&self, device: &str) -> Result<String, CaseFailure> {
        use_place(self.place)?;
        describe(device)
    }

    fn library_path(&self, _device: &str) -> Option<PathBuf> {
        Some(library(self.place).ok()?.path)
    }

    fn library_version(&self, _device: &str) -> Option<String> {
        let number = use_place(self.place).and_then(|()| Ok(build_number()?)).unwrap_or_default();
        Some(number.split('-').next().unwrap_or_default().into())
    }

    fn needs_one_shape(&self, _device: &str) -> bool {
        true
    }

    /// Each caller has a request of its own.
    fn serves_callers(&self, _device: &str) -> bool {
        true
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        // Weights in blocks run in f32 only: OpenVINO does not report whether it rounds their activations to i8.
        check_graphs(model, dtype, &[Dtype::F32], &Dtype::ALL)
    }

    /// A compiled graph reports its precision unless that is i8, but not whether weights stay in blocks.
    fn trace(&self, request: &LoadRequest<'_>, inputs: &[HostTensor]) -> Result<Option<Trace>, CaseFailure> {
        let is_of_blocks = request.model.blocks().is_some();
        if request.dtype != Dtype::I8 && !is_of_blocks {
            return Ok(None);
        }
        let profiled = Profiled::default();
        let mut session = open(self.place, request, Some(profiled.clone()))?;
        let binding = session.bind(inputs)?;
        session.run(binding)?;
        let trace = trace::trace(&profiled.operators()?, &own_name(request.device))?;
        if is_of_blocks {
            trace::check_blocks(&trace)?;
        }
        Ok(Some(trace))
    }

    fn load_exact(&self, request: &LoadRequest<'_>, folder: &Path) -> Result<Option<Box<dyn Session>>, CaseFailure> {
        let Some(artifacts) = dequantised(request, folder)? else { return Ok(None) };
        open(self.place, &LoadRequest { artifacts: &artifacts, ..*request }, None).map(Some)
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        open(self.place, request, None)
    }

    fn load_profiled(&self, request: &LoadRequest<'_>) -> Result<Box<dyn ProfiledSession>, CaseFailure> {
        if request.device != "cpu" {
            return Err(CaseFailure::unsupported("OpenVINO reports the times of operators on the CPU only"));
        }
        let tape = Profiled::traced();
        Ok(Box::new(RecordedSession { session: open(self.place, request, Some(tape.clone()))?, tape }))
    }
}

fn open(
    place: Option<&'static Path>,
    request: &LoadRequest<'_>,
    profiled: Option<Profiled>,
) -> Result<Box<dyn Session>, CaseFailure> {
    use_place(place)?;
    let mut core = core()?;
    let runtime = OpenVinoRuntime::new(&mut core, request, profiled)?;
    let parts = parts_of(request, Format::Onnx)?;
    let graphs = parts.iter().map(|(part, file)| Graph::read(&mut core, part, file));
    let graphs = graphs.collect::<Result<Vec<_>, _>>()?;
    let placement = runtime.placement(request.device);
    open_session(request, runtime, &parts, graphs, placement)
}
