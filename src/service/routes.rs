//! The paths of the server.

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use tower_http::catch_panic::CatchPanicLayer;

use super::benchmark::benchmark;
use super::context::Context;
use super::failure::Failure;
use super::guard::guard;
use super::{listing, openapi, page, runs};

pub fn router(context: Arc<Context>) -> Router {
    Router::new()
        .route("/api/v1/benchmark/{model}", get(benchmark))
        .route("/", get(page::index))
        .route("/docs", get(page::docs))
        .route("/page/{name}", get(page::part))
        .route("/api/v1/openapi.json", get(openapi::openapi))
        .route("/api/v1/runs", get(listing::runs).post(runs::submit))
        .route("/api/v1/runs/{id}", get(listing::run).delete(runs::cancel))
        .route("/api/v1/runs/{id}/events", get(runs::events))
        .route("/api/v1/runs/{id}/report", get(listing::report))
        .route("/api/v1/runs/profiles/{profile}/profile.html", get(listing::profile))
        .route("/api/v1/records", get(listing::records))
        .route("/api/v1/devices", get(listing::devices))
        .route("/api/v1/models", get(listing::models))
        .route("/api/v1/suites", get(listing::list_suites))
        .route("/api/v1/compare", get(listing::compare))
        .fallback(async || {
            Failure::not_found("there is nothing at this path; `GET /api/v1/openapi.json` lists what there is")
        })
        .method_not_allowed_fallback(async || {
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not have that method")
        })
        .layer(CatchPanicLayer::custom(|_: Box<dyn Any + Send>| Failure::panicked().into_response()))
        .layer(axum::middleware::from_fn_with_state(context.clone(), guard))
        .with_state(context)
}
