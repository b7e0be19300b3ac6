//! The interface of a backend that runs a model's parts as graphs.

use std::time::Duration;

use crate::definition::CaseFailure;
use crate::fixture::HostTensor;

/// An output of a runtime on the host; `kind` is its element type, such as `f32`.
pub(super) fn output_of_bytes(kind: &str, shape: Vec<usize>, bytes: &[u8]) -> Result<HostTensor, CaseFailure> {
    let output = HostTensor::from_bytes(kind, shape, bytes);
    output.map_err(|why| CaseFailure::unsupported(format!("an output: {why:#}")))
}

/// A library's own tensors and graphs.
pub(super) trait Runtime {
    type Graph;
    /// A tensor on the device; a clone shares it.
    type Value: Clone;

    fn upload(&self, tensor: &HostTensor) -> Result<Self::Value, CaseFailure>;
    fn download(&self, value: &Self::Value) -> Result<HostTensor, CaseFailure>;
    /// Runs a graph; inputs and outputs are in the order of the part's definition. May return before the device is
    /// done.
    fn run(&self, graph: &mut Self::Graph, inputs: &[&Self::Value]) -> Result<Vec<Self::Value>, CaseFailure>;
    /// The index of the largest logit of each row at its last position: `[batch, vocabulary]` or
    /// `[batch, positions, vocabulary]` to i64 `[batch, 1]`.
    fn greedy(&self, logits: &Self::Value) -> Result<Self::Value, CaseFailure>;
    /// Does the work that is needed once per batch of inputs, such as copying them to the device.
    fn prepare(&self, _graph: &mut Self::Graph, _inputs: &[&Self::Value]) -> Result<(), CaseFailure> {
        Ok(())
    }
    /// Returns when the device is idle.
    fn sync(&self) -> Result<(), CaseFailure> {
        Ok(())
    }
    /// Time that the graph's compilations took, if they are not a part of loading it.
    fn compilation(&self, _graph: &Self::Graph) -> Option<Duration> {
        None
    }
}
