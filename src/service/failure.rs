//! A request that fails: the HTTP status, and a message that says how to fix it.

use axum::extract::rejection::QueryRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::json;
use crate::run_data::Record;

/// The body of an error.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Failure {
    #[serde(skip)]
    pub code: StatusCode,
    /// Always `error`.
    pub status: &'static str,
    /// What is wrong, and how to fix it.
    pub message: String,
    /// The available devices, if the requested one is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_devices: Option<Vec<String>>,
    /// Names that are similar to the requested one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub near: Vec<String>,
    /// The row of the case whose measurement failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<Box<Record>>,
    /// Seconds after which to try again.
    #[serde(skip)]
    pub retry_after: Option<u64>,
}

impl Failure {
    pub fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Failure { code, status: "error", message: message.into(), ..Failure::default() }
    }

    /// A parameter is wrong.
    pub fn parameter(message: impl Into<String>) -> Self {
        Failure::new(StatusCode::UNPROCESSABLE_ENTITY, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Failure::new(StatusCode::NOT_FOUND, message)
    }

    /// A panic. Its message is only in the server's log, where the panic hook writes it.
    pub fn panicked() -> Self {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the server has made a mistake; its log has the details")
    }

    pub fn unavailable(message: impl Into<String>, retry_after: u64) -> Self {
        Failure { retry_after: Some(retry_after), ..Failure::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }
}

/// A file, the disk or a child process failed.
impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}"))
    }
}

/// A query string cannot be read. The message begins with the parameter.
impl From<QueryRejection> for Failure {
    fn from(error: QueryRejection) -> Self {
        let text = error.body_text().replace("invalid digit found in string", "not a whole number from 0 on");
        Failure::parameter(text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.code, json(&self)).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
