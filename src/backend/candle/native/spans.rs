//! The operators of candle's modules, by the `tracing` spans that `candle-transformers` opens around its layers.
//!
//! A span is made when its layer is loaded, and stays bound to the subscriber of that moment. So a profiled module is
//! loaded while [`Listener`] is the thread's subscriber, and a plain one is loaded without any. Spans have the name of
//! a kind of layer, such as `linear`. The weights that were read just before or after the span was made tell which
//! layer it is.
//!
//! An operator is a span without others inside, or the time between the begins or ends of two successive spans, which
//! has the name of the span around it. Such a time, like a span without weights, belongs to the module that contains
//! the layers around it.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use candle_core::safetensors::MmapedSafetensors;
use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::VarBuilder;
use candle_nn::var_builder::SimpleBackend;
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Dispatch, Event, Interest, Metadata, Subscriber, dispatcher};

use crate::backend::interface::Session;
use crate::backend::recorder::Tape;
use crate::definition::CaseFailure;
use crate::run_data::{OperatorCall, RecordedCall};

/// Layers whose span is made after their weights were read.
const AFTER_WEIGHTS: [&str; 3] = ["linear", "layer-norm", "embedding"];
/// Layers whose span is made before their weights are read.
const BEFORE_WEIGHTS: [&str; 2] = ["rms-norm", "conv2d"];
/// transformers' name of a linear layer that shares the weights of the embedding, and so reads none.
const TIED_HEAD: &str = "lm_head";
/// The name of the time outside of all spans.
const WHOLE: &str = "forward";

/// The spans of a module, and its calls.
#[derive(Default)]
pub struct Spans {
    shared: Arc<Mutex<Shared>>,
    calls: Vec<Vec<Moment>>,
}

#[derive(Default)]
struct Shared {
    layers: Vec<Layer>,
    /// The module whose weights were read last, until a layer takes it.
    read: Option<String>,
    /// The moments of the running call.
    call: Option<Vec<Moment>>,
}

/// A layer that has a span.
#[derive(Clone, Debug, PartialEq)]
struct Layer {
    name: &'static str,
    /// The module, if the layer has weights of its own.
    module: Option<String>,
}

/// When a span began or ended; the place of its layer is `None` for the call itself.
#[derive(Clone, Copy, Debug)]
struct Moment {
    layer: Option<usize>,
    begins: bool,
    at: Instant,
}

impl Spans {
    /// Loads a module, so that the spans of its layers are noted.
    pub fn listen<O>(&self, load: impl FnOnce() -> O) -> O {
        dispatcher::with_default(&Dispatch::new(Listener(Arc::clone(&self.shared))), load)
    }

    /// The weights of a file; notes which of them are read.
    ///
    /// # Safety
    /// As [`VarBuilder::from_mmaped_safetensors`].
    pub unsafe fn weights(&self, file: &Path, dtype: DType, device: &Device) -> Result<VarBuilder<'static>> {
        // SAFETY: the caller's promise.
        let inner = unsafe { MmapedSafetensors::new(file)? };
        let named = NamedWeights { inner, shared: Arc::clone(&self.shared) };
        Ok(VarBuilder::from_backend(Box::new(named), dtype, device.clone()))
    }

    /// Whether the loaded module has no spans.
    pub fn is_empty(&self) -> bool {
        lock(&self.shared).layers.is_empty()
    }
}

/// Notes the begin or the end of a layer in the running call, or of the call itself.
fn note(shared: &Mutex<Shared>, layer: Option<usize>, begins: bool) {
    let at = Instant::now();
    if let Some(call) = &mut lock(shared).call {
        call.push(Moment { layer, begins, at });
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tape for Spans {
    fn call_begins(&mut self) -> std::result::Result<(), CaseFailure> {
        lock(&self.shared).call = Some(Vec::new());
        note(&self.shared, None, true);
        Ok(())
    }

    fn call_ends(&mut self) -> std::result::Result<(), CaseFailure> {
        note(&self.shared, None, false);
        self.calls.extend(lock(&self.shared).call.take());
        Ok(())
    }

    fn begin(&mut self) -> std::result::Result<(), CaseFailure> {
        self.calls.clear();
        Ok(())
    }

    fn end(&mut self, _: Box<dyn Session>) -> std::result::Result<Vec<RecordedCall>, CaseFailure> {
        let layers = &lock(&self.shared).layers;
        let calls = std::mem::take(&mut self.calls);
        Ok(calls.iter().map(|call| RecordedCall { calls: 1, operators: operators(layers, call) }).collect())
    }
}

/// The weights of a file, which notes what is read.
struct NamedWeights {
    inner: MmapedSafetensors,
    shared: Arc<Mutex<Shared>>,
}

impl NamedWeights {
    fn note(&self, name: &str) {
        let mut shared = lock(&self.shared);
        let module = name.rsplit_once('.').map_or(name, |(module, _)| module).to_owned();
        match shared.layers.last_mut() {
            Some(Layer { name, module: own @ None }) if BEFORE_WEIGHTS.contains(name) => *own = Some(module),
            _ => shared.read = Some(module),
        }
    }
}

impl SimpleBackend for NamedWeights {
    fn get(&self, shape: Shape, name: &str, init: candle_nn::Init, dtype: DType, device: &Device) -> Result<Tensor> {
        self.note(name);
        SimpleBackend::get(&self.inner, shape, name, init, dtype, device)
    }

    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        self.note(name);
        self.inner.get_unchecked(name, dtype, device)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.inner.contains_tensor(name)
    }
}

/// Listens to the spans of `candle-transformers`.
struct Listener(Arc<Mutex<Shared>>);

impl Subscriber for Listener {
    /// A module that is loaded by another thread, or later, gets no spans.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("candle_transformers")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut shared = lock(&self.0);
        let name = span.metadata().name();
        let mut module = None;
        if AFTER_WEIGHTS.contains(&name) {
            module = shared.read.take().or_else(|| (name == "linear").then(|| TIED_HEAD.to_owned()));
        }
        shared.layers.push(Layer { name, module });
        Id::from_u64(shared.layers.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        note(&self.0, Some(span.into_u64() as usize - 1), true);
    }

    fn exit(&self, span: &Id) {
        note(&self.0, Some(span.into_u64() as usize - 1), false);
    }
}

/// A span without others inside, or the time between two successive begins or ends of spans.
struct Piece<'a> {
    name: &'a str,
    /// The module of a leaf's own weights.
    module: Option<&'a str>,
    /// The open spans, from the outermost.
    open: Vec<usize>,
    begin: Instant,
    end: Instant,
}

/// The pieces that a call consists of.
fn pieces<'a>(layers: &'a [Layer], call: &[Moment]) -> Vec<Piece<'a>> {
    let mut pieces: Vec<Piece<'_>> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    for (now, next) in call.iter().zip(call.iter().skip(1)) {
        match now.layer {
            Some(layer) if now.begins => open.push(layer),
            Some(_) => drop(open.pop()),
            None => {}
        }
        let is_leaf = now.layer.is_some() && now.begins && !next.begins;
        let layer = open.last().map(|&layer| &layers[layer]);
        pieces.push(Piece {
            name: layer.map_or(WHOLE, |layer| layer.name),
            module: layer.filter(|_| is_leaf).and_then(|layer| layer.module.as_deref()),
            open: open.clone(),
            begin: now.at,
            end: next.at,
        });
    }
    pieces
}

/// The operators of a call, from its moments.
fn operators(layers: &[Layer], call: &[Moment]) -> Vec<OperatorCall> {
    let Some(begin) = call.first().map(|moment| moment.at) else { return Vec::new() };
    let pieces = pieces(layers, call);
    // For each layer, the innermost module that contains the modules of all leaves inside.
    let mut contents: Vec<Option<&str>> = vec![None; layers.len()];
    for (module, open) in pieces.iter().filter_map(|piece| Some((parent(piece.module?), &piece.open))) {
        for &layer in open.iter().rev().skip(1) {
            contents[layer] = Some(contents[layer].map_or(module, |content| common(content, module)));
        }
    }
    let module = |place: usize, piece: &Piece<'_>| {
        let before = pieces[..place].iter().rev().find_map(|piece| piece.module);
        let after = pieces[place + 1..].iter().find_map(|piece| piece.module);
        let between = before.zip(after).map(|(before, after)| common(before, after));
        let around = piece.open.iter().rev().find_map(|&layer| contents[layer]);
        let longest = around.into_iter().chain(between).max_by_key(|module| module.len());
        piece.module.or(longest).filter(|module| !module.is_empty()).map(str::to_owned)
    };
    let operator = |(place, piece): (usize, &Piece<'_>)| OperatorCall {
        operator: piece.name.to_owned(),
        module: module(place, piece),
        start_ns: Some((piece.begin - begin).as_nanos() as u64),
        duration_ns: (piece.end - piece.begin).as_nanos() as u64,
        ..OperatorCall::default()
    };
    pieces.iter().enumerate().map(operator).collect()
}

/// The module around a module.
fn parent(module: &str) -> &str {
    module.rsplit_once('.').map_or("", |(parent, _)| parent)
}

/// The innermost module around two modules.
fn common<'a>(one: &'a str, other: &str) -> &'a str {
    let mut length = 0;
    for (a, b) in one.split('.').zip(other.split('.')) {
        if a != b {
            break;
        }
        length += a.len() + 1;
    }
    &one[..length.saturating_sub(1)]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_between_layers_belongs_to_the_module_around_them() {
        let layer =
            |name, module: &str| Layer { name, module: Some(module.to_owned()).filter(|name| !name.is_empty()) };
        let layers = [
            layer("block", ""),
            layer("attn", ""),
            layer("linear", "layers.0.attn.q"),
            layer("linear", "layers.0.attn.k"),
            layer("softmax", ""),
            layer("linear", "layers.0.mlp"),
            layer("linear", "lm_head"),
        ];
        let begin = Instant::now();
        let order = ["block", "attn", "q", "/q", "k", "/k", "softmax", "/softmax", "/attn", "mlp", "/mlp", "/block"];
        let order = order.into_iter().chain(["head", "/head"]);
        let place =
            |name: &str| ["block", "attn", "q", "k", "softmax", "mlp", "head"].iter().position(|own| *own == name);
        let mut call = vec![Moment { layer: None, begins: true, at: begin }];
        call.extend(order.zip(1..).map(|(name, ns)| Moment {
            layer: place(name.trim_start_matches('/')),
            begins: !name.starts_with('/'),
            at: begin + Duration::from_nanos(ns),
        }));
        call.push(Moment { layer: None, begins: false, at: begin + Duration::from_nanos(15) });
        let found = operators(&layers, &call);
        let told: Vec<_> =
            found.iter().map(|own| (own.operator.as_str(), own.module.as_deref().unwrap_or("-"))).collect();
        let expected = [
            ("forward", "-"),
            ("block", "layers.0"),
            ("attn", "layers.0.attn"),
            ("linear", "layers.0.attn.q"),
            ("attn", "layers.0.attn"),
            ("linear", "layers.0.attn.k"),
            ("attn", "layers.0.attn"),
            ("softmax", "layers.0.attn"),
            ("attn", "layers.0.attn"),
            ("block", "layers.0"),
            ("linear", "layers.0.mlp"),
            ("block", "layers.0"),
            ("forward", "-"),
            ("linear", "lm_head"),
            ("forward", "-"),
        ];
        assert_eq!(told, expected);
        let durations = found.iter().map(|own| own.duration_ns).collect::<Vec<_>>();
        assert_eq!(durations, [1; 15], "nothing of the call is left out");
    }
}
