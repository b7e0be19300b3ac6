//! inferbench's own endpoint: a request is a measurement, which the server makes one after the other.

use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{AnswerReader, Checked, Described, Protocol, Turn, Whole, Wishes, base_of, get_json};
use crate::definition::{Dtype, Phase};
use crate::remote::connection::{Call, Connection, Reader, Seen};
use crate::remote::fault::{Fault, Kind};
use crate::remote::target::Target;

struct Measurement {
    path: String,
}

/// # Errors
/// The outer error is about what was asked for, and the inner one about the server.
pub fn describe(connection: &mut Connection, target: &Target, wishes: &Wishes) -> Result<Result<Described, Fault>> {
    const START: &str = "/api/v1/benchmark/";
    let base = base_of(&target.path, &["/api"]);
    let named = target.path.split_once(START).map(|(_, name)| name.to_owned());
    let model = named.or_else(|| wishes.model.clone()).context("name the model that is measured by `--model`")?;
    let told = match get_json(connection, &format!("{base}/api/v1/openapi.json")) {
        Ok(told) => told.unwrap_or_default(),
        Err(fault) => return Ok(Err(fault)),
    };
    let version = told.pointer("/info/version").and_then(Value::as_str).unwrap_or_default();
    Ok(Ok(Described {
        protocol: Box::new(Measurement { path: format!("{base}{START}{model}") }),
        server: Some(format!("inferbench {version}").trim().to_owned()),
        model,
        dtype: Dtype::default(),
        phase: Phase::Forward,
        input_shape: None,
        makes_tokens: false,
    }))
}

impl Protocol for Measurement {
    fn name(&self) -> String {
        "inferbench".to_owned()
    }

    fn call(&self, _: Turn) -> Call {
        Call::get(&self.path)
    }

    fn reader(&self, _: Turn) -> Box<dyn AnswerReader> {
        Box::new(Answer(Whole::default()))
    }
}

struct Answer(Whole);

impl Reader for Answer {
    fn part(&mut self, bytes: &[u8], at: Instant) -> Result<(), Fault> {
        self.0.part(bytes, at)
    }
}

impl AnswerReader for Answer {
    fn check(&mut self, _: &Seen) -> Result<Checked, Fault> {
        let answer: Value = serde_json::from_slice(&self.0.0)
            .map_err(|error| Fault::new(Kind::WrongType, format!("the answer is no JSON: {error}")))?;
        match answer.get("status").and_then(Value::as_str) {
            Some("success") => Ok(Checked::default()),
            other => Err(Fault::new(Kind::ServerError, format!("the status of the answer is {other:?}"))),
        }
    }
}
