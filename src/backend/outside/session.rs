//! The session of a model that an external worker has loaded.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clock::Look;
use super::frame::NamedTensors;
use super::messages::{Called, Loaded, Profiled, ProfiledCall, Progress, load};
use super::process::OutsideProcess;
use crate::backend::generation::{Lengths, check_makes_tokens, check_takes_inputs, compared_logits, followed};
use crate::backend::graphs::made_values;
use crate::backend::interface::{
    Continuation, LoadRequest, NextTokens, Placement, ProfiledSession, Session, Stages, Turn,
};
use crate::definition::{CaseFailure, Model, Phase};
use crate::fixture::{HostTensor, TensorData};
use crate::run_data::RecordedCall;

/// A process that has waited for a request computes its first calls more slowly, until its threads and caches are warm
/// again. Therefore untimed calls for this long precede the timed ones. If a call takes at least `LONG`, the effect
/// does not show.
const LEAD: Duration = Duration::from_micros(500);
const LONG: Duration = Duration::from_millis(5);
/// The most calls that are timed together.
const MOST_TOGETHER: u64 = 100_000;

pub(super) struct OutsideSession {
    process: OutsideProcess,
    /// Both clocks just after the model was loaded.
    clocks: Look,
    /// Whether the clocks were compared before timed calls.
    are_clocks_compared: bool,
    model: Model,
    phase: Phase,
    calls_in_a_row: usize,
    /// How many calls of its row each binding has made. After 0, the next call begins a row.
    made: Vec<usize>,
    /// The mean time of a call, as last measured.
    call_ns: Option<u64>,
    /// True once a profile records each call: no untimed calls may be added then.
    is_profiled: bool,
    /// Whether untimed calls may precede a call from host to host. In a load test, they would delay the answer.
    leads: bool,
    /// The time of the very first call, without tracing and compiling.
    first: Option<Duration>,
    loaded: Loaded,
    progress: Progress,
}

impl OutsideSession {
    /// Loads the request's model in a process that was started for it.
    pub(super) fn load(mut process: OutsideProcess, request: &LoadRequest<'_>) -> Result<Self, CaseFailure> {
        let calls_in_a_row = match (&request.model.generation, request.phase) {
            (Some(_), Phase::Decode) => Lengths::of(request)?.steps,
            _ => 1,
        };
        let (mut loaded, _): (Loaded, _) = process.ask(&load(request)?, &[])?;
        let progress = std::mem::take(&mut loaded.progress);
        check_together(process.name(), &progress)?;
        let clocks = Look::at(&mut process)?;
        let (model, phase) = (request.model.clone(), request.phase);
        Ok(OutsideSession {
            process,
            clocks,
            are_clocks_compared: false,
            model,
            phase,
            calls_in_a_row,
            made: Vec::new(),
            call_ns: None,
            is_profiled: false,
            leads: false,
            first: None,
            loaded,
            progress,
        })
    }

    /// The inputs with their names. For generation, also the values that inferbench makes: `prefill/NAME` and
    /// `decode/NAME`.
    fn named(&self, inputs: &[HostTensor]) -> Result<NamedTensors, CaseFailure> {
        let names = self.model.inputs.iter().map(|input| input.name.clone());
        let mut named: NamedTensors = names.zip(inputs.iter().cloned()).collect();
        if self.is_generation() {
            let [prefill, decode] = made_values(&self.model, inputs)?;
            named.extend(prefill.into_iter().map(|(name, value)| (format!("prefill/{name}"), value)));
            named.extend(decode.into_iter().map(|(name, value)| (format!("decode/{name}"), value)));
        }
        Ok(named)
    }

    fn ask(&mut self, request: &Value, tensors: &[(String, HostTensor)]) -> Result<NamedTensors, CaseFailure> {
        let (progress, tensors) = self.process.ask::<Progress>(request, tensors)?;
        check_together(self.process.name(), &progress)?;
        let Progress { compile_ms, trace_ms, first_ms, computed_dtype, together, note } = progress;
        self.progress.compile_ms = compile_ms.or(self.progress.compile_ms);
        self.progress.trace_ms = trace_ms.or(self.progress.trace_ms);
        self.progress.first_ms = first_ms.or(self.progress.first_ms);
        self.progress.computed_dtype = computed_dtype.or(self.progress.computed_dtype);
        self.progress.together = together.or(self.progress.together);
        self.progress.note = note.or_else(|| self.progress.note.take());
        Ok(tensors)
    }

    fn put(&mut self, binding: usize, inputs: &[HostTensor]) -> Result<(), CaseFailure> {
        let named = self.named(inputs)?;
        self.ask(&json!({ "verb": "bind", "binding": binding }), &named).map(drop)
    }

    /// Counts a call of the turn's binding. Returns the turn, which begins a row if the binding was rewound.
    fn taken(&mut self, turn: Turn) -> Turn {
        let made = &mut self.made[turn.binding];
        let is_first = turn.is_first || *made == 0;
        *made = if is_first { 1 } else { *made + 1 };
        Turn { is_first, ..turn }
    }

    fn timed(&mut self, turns: &[Turn]) -> Result<Vec<u64>, CaseFailure> {
        let calls = turns.len();
        let turns = turns.iter().copied().map(on_the_wire).collect();
        let turns = HostTensor { shape: vec![calls], data: TensorData::I32(turns) };
        let begin = Instant::now();
        let answer = self.ask(&json!({ "verb": "run" }), &[("turns".into(), turns)])?;
        let elapsed = begin.elapsed().as_nanos() as f64;
        let name = self.process.name();
        let wrong = |what: String| CaseFailure::failed(format!("an answer of {name} to `run` has {what}"));
        let together = self.progress.together.unwrap_or(1).max(1) as usize;
        let times = answer.into_iter().find_map(|(name, tensor)| match tensor.data {
            TensorData::I64(times) if name == "times" => Some(times),
            _ => None,
        });
        let times = times.ok_or_else(|| wrong("no tensor `times` of i64".into()))?;
        if times.len() != calls.div_ceil(together) {
            return Err(wrong(format!("{} times for {calls} calls, {together} together", times.len())));
        }
        let times: Option<Vec<u64>> = times.into_iter().map(|ns| u64::try_from(ns).ok().map(|ns| ns.max(1))).collect();
        let times = times.ok_or_else(|| wrong("a time below 0".into()))?;
        let sum = times.iter().map(|&ns| ns as f64).sum::<f64>();
        if is_longer(sum, elapsed) {
            return Err(wrong(format!("calls of {:.3} ms, but took only {:.3} ms", sum / 1e6, elapsed / 1e6)));
        }
        Ok(single_calls(&times, calls, together))
    }

    fn outputs_of(&self, mut answer: NamedTensors) -> Result<Vec<HostTensor>, CaseFailure> {
        let names = self.model.output_names(self.phase);
        if names.is_empty() {
            return Ok(answer.into_iter().map(|(_, tensor)| tensor).collect());
        }
        let output = |name: String| {
            let place = answer.iter().position(|(own, _)| *own == name);
            let place = place.ok_or_else(|| {
                CaseFailure::failed(format!("an answer of {} to `outputs` has no {name:?}", self.process.name()))
            })?;
            Ok(answer.swap_remove(place).1)
        };
        names.into_iter().map(output).collect()
    }

    /// How much faster the clock of the process is; `None` if it is too early to say.
    pub(super) fn compare_clocks(&mut self) -> Result<Option<f64>, CaseFailure> {
        self.clocks.compare(&mut self.process)
    }

    /// Compares the clocks before timed calls, once per session and as soon as it is not too early. Otherwise, an arm of
    /// a duel, which requests no outputs, would never compare them.
    fn check_clocks(&mut self) -> Result<(), CaseFailure> {
        if !self.are_clocks_compared {
            self.are_clocks_compared = self.compare_clocks()?.is_some();
        }
        Ok(())
    }

    /// The time that the process has spent on tracing and compiling so far.
    fn preparation(&self) -> Duration {
        [self.progress.trace_ms, self.progress.compile_ms].into_iter().flatten().map(milliseconds).sum()
    }

    fn is_generation(&self) -> bool {
        matches!(self.phase, Phase::Prefill | Phase::Decode)
    }
}

/// Whether calls took longer, as the process reports, than its answer did. Small differences between the clocks are
/// allowed.
fn is_longer(told_ns: f64, elapsed_ns: f64) -> bool {
    told_ns > 1.01 * elapsed_ns + 1e5
}

/// # Errors
/// More than [`MOST_TOGETHER`] calls are timed together.
fn check_together(name: &str, progress: &Progress) -> Result<(), CaseFailure> {
    match progress.together.filter(|calls| *calls > MOST_TOGETHER) {
        None => Ok(()),
        Some(calls) => Err(CaseFailure::failed(format!(
            "{name} times {calls} calls together, but at most {MOST_TOGETHER} are allowed"
        ))),
    }
}

/// The untimed calls before the first timed turn. If that turn is in the middle of a row, they use another binding,
/// whose row begins anew afterwards.
fn lead_in(first: Turn, bindings: usize, row: usize, together: usize, call_ns: Option<u64>) -> Vec<Turn> {
    // A call within one step of a coarse clock is noted as 1 ns, or 0: its time is not known.
    let known = call_ns.filter(|ns| *ns > 1).map(Duration::from_nanos);
    let Some(call) = known.filter(|call| *call < LONG) else { return Vec::new() };
    if row > 1 && together > 1 || !first.is_first && bindings < 2 {
        return Vec::new();
    }
    let calls = (LEAD.as_nanos().div_ceil(call.as_nanos()) as usize).next_multiple_of(together);
    let binding = if first.is_first { first.binding } else { (first.binding + 1) % bindings };
    (0..calls).map(|call| Turn { binding, is_first: call % row == 0 }).collect()
}

/// The times of single calls. Each of `times` covers `together` calls; the last one covers the remaining calls.
fn single_calls(times: &[u64], calls: usize, together: usize) -> Vec<u64> {
    if together == 1 {
        return times.to_vec();
    }
    let of_time = |(place, &ns): (usize, &u64)| {
        let count = together.min(calls - place * together) as u64;
        // The remainder of the division is spread, so that the sum stays the same.
        (0..count).map(move |call| (ns / count + u64::from(call < ns % count)).max(1))
    };
    times.iter().enumerate().flat_map(of_time).collect()
}

impl Session for OutsideSession {
    fn bind(&mut self, inputs: &[HostTensor]) -> Result<usize, CaseFailure> {
        self.put(self.made.len(), inputs)?;
        self.made.push(0);
        Ok(self.made.len() - 1)
    }

    fn calls_in_a_row(&self) -> usize {
        self.calls_in_a_row
    }

    fn rewind(&mut self, binding: usize) {
        self.made[binding] = 0;
    }

    fn rebind(&mut self, binding: usize, inputs: &[HostTensor]) -> Result<(), CaseFailure> {
        if self.is_generation() {
            return Err(CaseFailure::unsupported("a session of generation does not replace its inputs"));
        }
        self.put(binding, inputs)
    }

    fn run(&mut self, binding: usize) -> Result<(), CaseFailure> {
        let before = self.preparation();
        let turn = self.taken(Turn { binding, is_first: false });
        let ns = self.timed(&[turn])?.first().copied().unwrap_or_default();
        let preparation = self.preparation().saturating_sub(before);
        self.first.get_or_insert(Duration::from_nanos(ns).saturating_sub(preparation));
        Ok(())
    }

    fn run_timed(&mut self, turns: &mut dyn Iterator<Item = Turn>) -> Option<Result<Vec<u64>, CaseFailure>> {
        let first = turns.next()?;
        if let Err(failure) = self.check_clocks() {
            return Some(Err(failure));
        }
        let together = self.progress.together.unwrap_or(1).max(1) as usize;
        let first = self.taken(first);
        let call_ns = self.call_ns.filter(|_| !self.is_profiled);
        let mut all = lead_in(first, self.made.len(), self.calls_in_a_row, together, call_ns);
        if let Some(lead) = all.first().filter(|lead| lead.binding != first.binding) {
            self.made[lead.binding] = 0;
        }
        let untimed = all.len();
        all.push(first);
        all.extend(turns.map(|turn| self.taken(turn)));
        let times = self.timed(&all).map(|mut times| times.split_off(untimed));
        self.call_ns =
            times.as_ref().map_or(self.call_ns, |times| times.iter().sum::<u64>().checked_div(times.len() as u64));
        Some(times)
    }

    fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, CaseFailure> {
        self.compare_clocks()?;
        let answer = self.ask(&json!({ "verb": "outputs", "binding": binding }), &[])?;
        self.made[binding] = 0;
        let mut outputs = self.outputs_of(answer)?;
        if self.is_generation()
            && let Some(logits) = outputs.last_mut()
        {
            *logits = compared_logits(logits)?;
        }
        Ok(outputs)
    }

    fn follow(
        &mut self,
        inputs: &[HostTensor],
        continuation: Continuation<'_>,
    ) -> Result<Vec<NextTokens>, CaseFailure> {
        check_makes_tokens(self.phase)?;
        let mut named = self.named(inputs)?;
        if let Continuation::Given { text, .. } = continuation {
            named.push(("text".to_owned(), text.clone()));
        }
        let ends = if let Continuation::Likeliest { ends, .. } = continuation { ends } else { &[] };
        let ask = json!({ "verb": "follow", "tokens": continuation.count(), "ends": ends });
        let logits = self.ask(&ask, &named)?;
        // If tokens can end the text, there may be fewer tensors.
        let least = if ends.is_empty() { continuation.count() } else { 1 };
        if !(least..=continuation.count()).contains(&logits.len()) {
            let (name, found, tokens) = (self.process.name(), logits.len(), continuation.count());
            return Err(CaseFailure::failed(format!(
                "an answer of {name} to `follow` has {found} tensors for {tokens} tokens"
            )));
        }
        let mut logits = logits.into_iter();
        followed(continuation, |_| Ok(logits.next().map(|(_, logits)| logits)))
    }

    fn allow_lead_in(&mut self) {
        self.leads = true;
    }

    fn call_from_host(
        &mut self,
        binding: usize,
        inputs: &[HostTensor],
    ) -> Result<(Vec<HostTensor>, Stages), CaseFailure> {
        check_takes_inputs(self.phase)?;
        let named = self.named(inputs)?;
        if self.leads {
            self.check_clocks()?;
        }
        // The worker first makes this many untimed calls.
        let call_ns = self.call_ns.filter(|_| self.leads);
        let before = lead_in(Turn { binding, is_first: true }, 1, 1, 1, call_ns).len();
        let ask = json!({ "verb": "call", "binding": binding, "before": before });
        let begin = Instant::now();
        let (called, outputs) = self.process.ask::<Called>(&ask, &named)?;
        let elapsed = begin.elapsed().as_nanos() as f64;
        let stages = [called.to_device_ns, called.compute_ns, called.to_host_ns];
        let sum = stages.iter().map(|&ns| ns as f64).sum::<f64>();
        if is_longer(sum, elapsed) {
            let (name, sum, elapsed) = (self.process.name(), sum / 1e6, elapsed / 1e6);
            return Err(CaseFailure::failed(format!(
                "an answer of {name} to `call` has stages of {sum:.3} ms, but took only {elapsed:.3} ms"
            )));
        }
        let [to_device, compute, to_host] = stages.map(Duration::from_nanos);
        self.call_ns = Some(called.compute_ns);
        // The answer to a prefill has only the token.
        let outputs = if self.is_generation() {
            outputs.into_iter().map(|(_, output)| output).collect()
        } else {
            self.outputs_of(outputs)?
        };
        Ok((outputs, Stages { to_device, compute, to_host }))
    }

    fn has_own_clock(&self) -> bool {
        true
    }

    fn compilation(&self) -> Option<Duration> {
        self.progress.compile_ms.map(milliseconds)
    }

    fn first_call(&self) -> Option<Duration> {
        self.progress.first_ms.map(milliseconds).or(self.first)
    }

    fn placement(&self) -> Placement {
        let Loaded { device, device_type, dtype, threads, provider, note, files, has_fixed_sizes, .. } =
            self.loaded.clone();
        Placement {
            effective_device: device,
            device_type,
            effective_dtype: self.progress.computed_dtype.or(dtype),
            providers: provider.unwrap_or_else(|| self.process.name().to_owned()),
            threads,
            artifacts: files,
            has_fixed_sizes,
            executor: self.progress.note.clone().or(note),
            together: self.progress.together,
            tracing: self.progress.trace_ms.map(milliseconds),
            ..Placement::default()
        }
    }
}

impl ProfiledSession for OutsideSession {
    fn begin(&mut self) -> Result<(), CaseFailure> {
        self.is_profiled = true;
        self.ask(&json!({ "verb": "profile", "is_on": true }), &[]).map(drop)
    }

    fn end(&mut self) -> Result<Vec<RecordedCall>, CaseFailure> {
        let (Profiled { calls }, _) = self.process.ask(&json!({ "verb": "profile", "is_on": false }), &[])?;
        Ok(calls.into_iter().map(|ProfiledCall { operators }| RecordedCall { calls: 1, operators }).collect())
    }
}

/// The number of the binding, or `-1 - number` if the call is the first of a row.
fn on_the_wire(Turn { binding, is_first }: Turn) -> i32 {
    let binding = i32::try_from(binding).unwrap_or(i32::MAX);
    if is_first { -1 - binding } else { binding }
}

fn milliseconds(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}

#[cfg(test)]
mod tests;
