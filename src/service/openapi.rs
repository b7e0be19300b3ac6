//! The OpenAPI document. Its schemas are made from the types of the answers, so they cannot differ from them.

use axum::response::Response;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use super::answer::{Answer, json as response};
use super::asked::Asked;
use super::benchmark::BenchmarkQuery;
use super::devices::Found;
use super::failure::Failure;
use super::listing::{CompareQuery, ModelsQuery, Page, RecordsQuery, RunsQuery};
use super::models::Listed;
use super::runs::Run;
use crate::run_data::Record;

/// `GET /api/v1/openapi.json`.
pub async fn openapi() -> Response {
    response(&document())
}

fn document() -> Value {
    let mut schemas = SchemaSettings::openapi3().into_generator();
    let failure = schemas.subschema_for::<Failure>();
    let mut api = Api { schemas, failure, paths: Map::new() };
    let id = || vec![path_parameter("id", "The id of a run.")];

    let mut parameters = vec![path_parameter("model", "A packaged model, or the name of a file with its extension.")];
    parameters.extend(query_parameters::<BenchmarkQuery>());
    let summary = "Measures one case, while the client waits. Equal requests that wait share one measurement.";
    let errors = [
        (404, "There is no such model; `near` has names like it."),
        (409, "The device is not available; `available_devices` has those that are."),
        (422, "A parameter is wrong, or the backend cannot run the model."),
        (500, "The measurement failed; the message and the record say why."),
        (503, "The queue is full: try again after `Retry-After` seconds."),
    ];
    api.add::<Answer>("get", "/benchmark/{model}", summary, parameters, &errors);

    let errors = [
        (404, "There is no such model; `near` has names like it."),
        (408, "The body took too long to arrive."),
        (409, "A device is not available."),
        (413, "More than 1 MiB."),
        (415, "Not JSON."),
        (422, "A value is wrong."),
        (503, "The queue is full."),
    ];
    api.add::<Run>("post", "/runs", "Starts a job.", Vec::new(), &errors);
    let body = content(&api.schemas.subschema_for::<Asked>());
    api.paths["/api/v1/runs"]["post"]["requestBody"] = json!({ "required": true, "content": body });
    let summary = "Jobs and the runs of the history, the newest first.";
    let busy = (503, "A measurement runs, and a list was read a moment ago: try again after `Retry-After` seconds.");
    api.add::<Page<Run>>("get", "/runs", summary, query_parameters::<RunsQuery>(), &[busy]);
    let missing = [(404, "There is no such run."), busy];
    api.add::<Run>("get", "/runs/{id}", "A job, a run, or both.", id(), &missing);
    let errors = [(404, "There is no such job."), (409, "It is over.")];
    api.add::<Run>("delete", "/runs/{id}", "Cancels a job; finished cases are kept.", id(), &errors);
    let summary =
        "Server-sent events `planned`, `case`, `left` and `state`, from the beginning or after `Last-Event-ID`.";
    api.add_text("/runs/{id}/events", "text/event-stream", summary, id(), &[(404, "There is no such job.")]);
    api.add_text("/runs/{id}/report", "text/html", "The page with charts of a run.", id(), &missing);
    let profile = vec![path_parameter("profile", "The name of a profile.")];
    let missing = [(404, "There is no such profile."), busy];
    let summary = "The page of a profile, to which reports have links.";
    api.add_text("/runs/profiles/{profile}/profile.html", "text/html", summary, profile, &missing);
    let summary = "Records, the newest run first, as JSON, CSV or Parquet by `Accept`.";
    let errors = [(406, "None of the three is accepted."), (422, "A parameter is wrong."), busy];
    api.add::<Page<Record>>("get", "/records", summary, query_parameters::<RecordsQuery>(), &errors);
    let summary = "What `inferbench compare BASE CANDIDATE --format json` prints.";
    let errors = [
        (404, "There is no such run."),
        (422, "The runs cannot be compared."),
        (503, "A measurement runs, which a comparison would disturb."),
    ];
    api.add::<Map<String, Value>>("get", "/compare", summary, query_parameters::<CompareQuery>(), &errors);
    api.add::<Found>("get", "/devices", "The machine, and its devices on every backend.", Vec::new(), &[]);
    api.add::<Page<Listed>>("get", "/models", "The models.", query_parameters::<ModelsQuery>(), &[]);
    api.add::<Map<String, Value>>("get", "/suites", "The names of the suites.", Vec::new(), &[]);
    json!({
        "openapi": "3.0.3",
        "info": { "title": "inferbench", "version": env!("CARGO_PKG_VERSION"), "description": "Measurements of inference on this machine." },
        "paths": api.paths,
        "components": {
            "schemas": api.schemas.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{}, { "token": [] }],
    })
}

struct Api {
    schemas: SchemaGenerator,
    failure: Schema,
    paths: Map<String, Value>,
}

impl Api {
    /// Adds a method of a path below `/api/v1`. `T` is the type of its answer.
    fn add<T: JsonSchema>(
        &mut self,
        method: &str,
        path: &str,
        summary: &str,
        parameters: Vec<Value>,
        errors: &[(u16, &str)],
    ) {
        let answer = content(&self.schemas.subschema_for::<T>());
        // A request that starts or cancels a job is answered with 202 (accepted), before the job has started or ended.
        let code = if method == "get" { "200" } else { "202" };
        let mut responses = Map::new();
        responses.insert(code.to_owned(), json!({ "description": "The answer.", "content": answer }));
        for (code, description) in errors {
            let failure = json!({ "description": description, "content": content(&self.failure) });
            responses.insert(code.to_string(), failure);
        }
        let operation = json!({ "summary": summary, "parameters": parameters, "responses": responses });
        let methods = self.paths.entry(format!("/api/v1{path}")).or_insert_with(|| json!({}));
        methods[method] = operation;
    }

    /// Adds a GET whose answer is a text of this content type instead of JSON.
    fn add_text(&mut self, path: &str, kind: &str, summary: &str, parameters: Vec<Value>, errors: &[(u16, &str)]) {
        self.add::<String>("get", path, summary, parameters, errors);
        let content = json!({ kind: { "schema": { "type": "string" } } });
        self.paths[&format!("/api/v1{path}")]["get"]["responses"]["200"]["content"] = content;
    }
}

fn content(schema: &Schema) -> Value {
    json!({ "application/json": { "schema": schema } })
}

fn path_parameter(name: &str, description: &str) -> Value {
    json!({ "name": name, "in": "path", "required": true, "description": description, "schema": { "type": "string" } })
}

/// The fields of a type as parameters of a query.
fn query_parameters<T: JsonSchema>() -> Vec<Value> {
    let mut settings = SchemaSettings::openapi3();
    settings.inline_subschemas = true;
    let schema = SchemaGenerator::new(settings).into_root_schema_for::<T>();
    let required = schema.get("required").cloned().unwrap_or_default();
    let fields = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let parameter = |(name, mut field): (String, Value)| {
        let description = field.as_object_mut().and_then(|field| field.remove("description"));
        let is_required = required.as_array().is_some_and(|names| names.iter().any(|it| it == name.as_str()));
        json!({ "name": name, "in": "query", "required": is_required, "description": description.unwrap_or_default(), "schema": field })
    };
    fields.into_iter().map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_of_the_document_leads_to_a_schema() {
        let document = document();
        let text = document.to_string();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let referred: Vec<&str> =
            text.split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(referred.len() > 20 && referred.iter().all(|name| schemas.contains_key(*name)), "{referred:?}");
        let parameters = document["paths"]["/api/v1/benchmark/{model}"]["get"]["parameters"].as_array().unwrap();
        assert!(
            parameters.iter().any(|parameter| parameter["name"] == "max_age" && parameter["in"] == "query"),
            "{parameters:?}"
        );
        let responses = |path: &str| document["paths"][format!("/api/v1{path}")]["get"]["responses"].clone();
        for path in ["/runs", "/runs/{id}", "/runs/{id}/report", "/records", "/compare"] {
            assert!(responses(path)["503"].is_object(), "{path}");
        }
        for (path, kind) in [("/runs/{id}", "application/json"), ("/runs/{id}/report", "text/html")] {
            assert!(responses(path)["200"]["content"][kind].is_object(), "{path}");
        }
    }
}
