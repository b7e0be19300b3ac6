//! Code of a user around a model, as a backend: each closure stands for a model, and a call of it is a call of the case.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use super::interface::{Backend, LoadRequest, Session, Stages};
use crate::definition::CaseFailure;
use crate::fixture::HostTensor;

/// What is called; each process of the bench executable has its own.
pub type Closure = Box<dyn Fn() + Send + Sync>;

/// Closures by the names of their models.
pub struct Closures(pub BTreeMap<String, Closure>);

impl Closures {
    fn find(&'static self, name: &str) -> Result<&'static Closure, CaseFailure> {
        self.0.get(name).ok_or_else(|| CaseFailure::unsupported(format!("{name} is a model and no closure")))
    }
}

impl Backend for &'static Closures {
    fn check_model(&self, model: &crate::definition::Model, _: crate::definition::Dtype) -> Result<(), CaseFailure> {
        self.find(&model.name).map(drop)
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        Ok(Box::new(ClosureSession { closure: self.find(&request.model.name)?, bindings: 0 }))
    }
}

/// A closure that is called. It has no inputs and outputs that could be compared.
struct ClosureSession {
    closure: &'static Closure,
    bindings: usize,
}

impl Session for ClosureSession {
    fn bind(&mut self, _: &[HostTensor]) -> Result<usize, CaseFailure> {
        self.bindings += 1;
        Ok(self.bindings - 1)
    }

    fn run(&mut self, binding: usize) -> Result<(), CaseFailure> {
        (self.closure)();
        black_box(binding);
        Ok(())
    }

    fn outputs(&mut self, _: usize) -> Result<Vec<HostTensor>, CaseFailure> {
        Ok(Vec::new())
    }

    fn call_from_host(&mut self, binding: usize, _: &[HostTensor]) -> Result<(Vec<HostTensor>, Stages), CaseFailure> {
        let begin = Instant::now();
        self.run(binding)?;
        let stages = Stages { to_device: Duration::ZERO, compute: begin.elapsed(), to_host: Duration::ZERO };
        Ok((Vec::new(), stages))
    }
}
