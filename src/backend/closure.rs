//! A user's own code as a backend: each closure stands for a model, and a call of the closure is a call of the case.

use std::collections::BTreeMap;

use super::interface::{Backend, LoadRequest, Session};
use crate::definition::{CaseFailure, Dtype, Model};
use crate::fixture::HostTensor;

/// The code to call; each process of the bench executable has its own.
pub type Closure = Box<dyn Fn() + Send + Sync>;

/// Closures by the names of their models.
pub struct Closures(pub BTreeMap<String, Closure>);

impl Closures {
    fn find(&'static self, name: &str) -> Result<&'static Closure, CaseFailure> {
        self.0.get(name).ok_or_else(|| CaseFailure::unsupported(format!("{name} is a model, not a closure")))
    }
}

impl Backend for &'static Closures {
    fn check_model(&self, model: &Model, _: Dtype) -> Result<(), CaseFailure> {
        self.find(&model.name).map(drop)
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        Ok(Box::new(ClosureSession { closure: self.find(&request.model.name)?, bindings: 0 }))
    }
}

/// A closure as a session. It has no inputs, and no outputs to compare.
struct ClosureSession {
    closure: &'static Closure,
    bindings: usize,
}

impl Session for ClosureSession {
    fn bind(&mut self, _: &[HostTensor]) -> Result<usize, CaseFailure> {
        self.bindings += 1;
        Ok(self.bindings - 1)
    }

    fn rebind(&mut self, _: usize, _: &[HostTensor]) -> Result<(), CaseFailure> {
        Ok(())
    }

    fn run(&mut self, _: usize) -> Result<(), CaseFailure> {
        (self.closure)();
        Ok(())
    }

    fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, CaseFailure> {
        self.run(binding).map(|()| Vec::new())
    }
}
