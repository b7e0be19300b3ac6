//! The protocol of `inferbench serve`: a request is a measurement. The server makes one at a time.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{AnswerReader, Checked, Described, Protocol, Turn, Wishes, base_of, get_json, parsed, whole};
use crate::remote::connection::{Call, Connection};
use crate::remote::fault::{Fault, Kind};
use crate::remote::target::Target;

struct Measurement {
    path: String,
}

/// # Errors
/// No model is named, or the server has a [`Fault`].
pub fn describe(connection: &mut Connection, target: &Target, wishes: &Wishes) -> Result<Described> {
    const START: &str = "/api/v1/benchmark/";
    ensure!(wishes.batch_size == 1, "a request is one measurement, not a batch: leave `--batch-sizes` out");
    let base = base_of(&target.path, &["/api"]);
    let named = target.path.split_once(START).map(|(_, name)| name.to_owned());
    let model = named.or_else(|| wishes.model.clone()).context("name the model to measure with `--model`")?;
    let told = get_json(connection, &format!("{base}/api/v1/openapi.json"))?.unwrap_or_default();
    let version = told.pointer("/info/version").and_then(Value::as_str).unwrap_or_default();
    let server = Some(format!("inferbench {version}").trim().to_owned());
    let path = format!("{base}{START}{model}");
    Ok(Described { server, ..Described::new(Measurement { path }, model) })
}

impl Protocol for Measurement {
    fn name(&self) -> String {
        "inferbench".to_owned()
    }

    fn call(&self, _: Turn) -> Call {
        Call::get(&self.path)
    }

    fn reader(&self, _: Turn) -> Box<dyn AnswerReader> {
        whole(|body, _| check(body))
    }
}

fn check(body: &[u8]) -> Result<Checked, Fault> {
    let answer: Value = parsed(body)?;
    match answer.get("status").and_then(Value::as_str) {
        Some("success") => Ok(Checked::default()),
        other => Err(Fault::new(Kind::ServerError, format!("the status of the answer is {other:?}"))),
    }
}
