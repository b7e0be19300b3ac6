"use strict";
// The OpenAPI document, for reading.

const typeOf = (schema) => schema?.$ref?.split("/").pop() ?? (schema?.items ? `list of ${typeOf(schema.items)}` : schema?.format ?? schema?.type ?? (schema?.enum ?? []).join(" | "));

function table(head, body) {
  return make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...head.map((text) => make("th", {}, text)))),
    make("tbody", {}, ...body.map((cells) => make("tr", {}, ...cells.map((text, index) => make("td", { class: index === cells.length - 1 ? "reason" : "" }, text)))))));
}

function operation(path, method, { summary, parameters = [], requestBody, responses }) {
  const node = make("section", {}, make("h2", {}, `${method.toUpperCase()} ${path}`), make("p", {}, summary));
  if (parameters.length) node.append(table(["parameter", "in", "type", ""], parameters.map((one) => [one.name, one.in, typeOf(one.schema), one.description ?? ""])));
  const body = requestBody?.content["application/json"].schema;
  if (body) node.append(make("p", {}, `The body is ${typeOf(body)}.`));
  node.append(table(["code", ""], Object.entries(responses).map(([code, one]) => [code, one.description])));
  return node;
}

function type(name, schema) {
  const fields = Object.entries(schema.properties ?? {}).map(([field, one]) => [field, typeOf(one.anyOf?.[0] ?? one.allOf?.[0] ?? one), one.description ?? ""]);
  return make("section", {}, make("h2", {}, name), make("p", { class: "caption" }, schema.description ?? ""), table(["field", "type", ""], fields));
}

fetch("/api/v1/openapi.json").then((response) => response.json()).then((document_) => {
  const main = document.getElementById("docs");
  for (const [path, methods] of Object.entries(document_.paths)) {
    for (const [method, one] of Object.entries(methods)) main.append(operation(path, method, one));
  }
  for (const [name, schema] of Object.entries(document_.components.schemas)) if (schema.properties) main.append(type(name, schema));
  document.documentElement.dataset.ready = "yes";
});
