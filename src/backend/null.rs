//! A backend that computes nothing, to show the harness's own overhead.

use std::hint::black_box;
use std::time::Duration;

use crate::backend::interface::{Backend, DeviceReport, LoadRequest, Placement, Session, Stages};
use crate::definition::{CaseFailure, Dtype, Model, NULL};
use crate::fixture::{HostTensor, TensorData};

/// Returns its first input as its output, at once. Never part of a suite by default, and never ranked.
pub struct Null;

impl Backend for Null {
    fn devices(&self) -> Vec<DeviceReport> {
        vec![DeviceReport::certain("cpu", Ok("computes nothing".into()))]
    }

    fn serves_callers(&self, _: &str) -> bool {
        true
    }

    fn check_model(&self, _: &Model, _: Dtype) -> Result<(), CaseFailure> {
        Ok(())
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        Ok(Box::new(NullSession::new(request.dtype)))
    }
}

/// A session of the null backend.
pub struct NullSession {
    dtype: Dtype,
    bound: Vec<Vec<HostTensor>>,
}

impl NullSession {
    pub fn new(dtype: Dtype) -> Self {
        NullSession { dtype, bound: Vec::new() }
    }
}

impl Session for NullSession {
    fn bind(&mut self, inputs: &[HostTensor]) -> Result<usize, CaseFailure> {
        self.bound.push(inputs.to_vec());
        Ok(self.bound.len() - 1)
    }

    fn run(&mut self, binding: usize) -> Result<(), CaseFailure> {
        black_box(binding);
        Ok(())
    }

    fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, CaseFailure> {
        Ok(self.bound[binding].first().cloned().into_iter().collect())
    }

    fn generate(
        &mut self,
        _: &[HostTensor],
        tokens: usize,
        made: &mut dyn FnMut(&HostTensor),
    ) -> Result<(), CaseFailure> {
        let token = HostTensor { shape: vec![1, 1], data: TensorData::I64(vec![0]) };
        (0..tokens).for_each(|_| made(&token));
        Ok(())
    }

    fn call_from_host(
        &mut self,
        binding: usize,
        inputs: &[HostTensor],
    ) -> Result<(Vec<HostTensor>, Stages), CaseFailure> {
        black_box((binding, inputs));
        let stages = Stages { to_device: Duration::ZERO, compute: Duration::ZERO, to_host: Duration::ZERO };
        Ok((Vec::new(), stages))
    }

    fn placement(&self) -> Placement {
        Placement {
            effective_device: "cpu".into(),
            effective_dtype: Some(self.dtype),
            providers: NULL.into(),
            threads: Some(1),
            ..Placement::default()
        }
    }
}
