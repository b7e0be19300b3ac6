//! The pages of the server and their parts. All are in this executable, and load nothing from elsewhere.

use axum::extract::Path;
use axum::response::Response;

use super::answer::bytes;
use super::failure::Failure;

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PAGE: &str = "text/html; charset=utf-8";

/// `GET /`.
pub async fn index() -> Response {
    bytes(include_str!("page/index.html"), PAGE)
}

/// `GET /docs`.
pub async fn docs() -> Response {
    bytes(include_str!("page/docs.html"), PAGE)
}

/// `GET /page/{name}`.
pub async fn part(Path(name): Path<String>) -> Result<Response, Failure> {
    let (content, kind) = match name.as_str() {
        "service.js" => (include_str!("page/service.js"), SCRIPT),
        "docs.js" => (include_str!("page/docs.js"), SCRIPT),
        "service.css" => (include_str!("page/service.css"), STYLE),
        // Shared with the pages of runs.
        "dom.js" => (include_str!("../report/html/page/dom.js"), SCRIPT),
        "numbers.js" => (include_str!("../report/html/page/numbers.js"), SCRIPT),
        "report.css" => (include_str!("../report/html/page/style.css"), STYLE),
        _ => return Err(Failure::not_found("the pages have no part of that name")),
    };
    Ok(bytes(content, kind))
}
