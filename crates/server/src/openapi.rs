//! The OpenAPI document, made from the table of routes.

use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::auth::{Cap, Everywhere, Role, actions};
use crate::problem::{Code, Problem};
use crate::route::{Ask, Give, Listed, respond};
use crate::table;

/// The document.
pub(crate) struct Document(Value);

impl Give for Document {
    fn shape() -> (&'static str, Option<Value>) {
        ("application/json", Some(json!({"type": "object"})))
    }

    fn give(self) -> Response {
        let text = self.0.to_string();
        respond(axum::http::StatusCode::OK, "application/json", text)
    }
}

pub(crate) async fn show(
    _: Cap<actions::KnowOneself, Everywhere>,
    _: Ask,
) -> Result<Document, Problem> {
    Ok(Document(document(&table::listed())))
}

pub(crate) fn document(routes: &[Listed]) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let at = paths
            .entry(route.path.to_owned())
            .or_insert_with(|| json!({}));
        at[route.method.as_str().to_ascii_lowercase()] = operation(route);
    }
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Roundel", "version": env!("CARGO_PKG_VERSION")},
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": crate::auth::COOKIE},
            },
            "schemas": {"Problem": {
                "type": "object",
                "properties": {
                    "type": {"type": "string"},
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                    "code": {"type": "string", "enum": codes},
                    "detail": {"type": "string"},
                },
                "required": ["type", "status", "code", "detail"],
            }},
        },
    })
}

fn operation(route: &Listed) -> Value {
    let mut parameters = Vec::new();
    for part in route.path.split('/') {
        let name = part
            .strip_prefix('{')
            .and_then(|part| part.strip_suffix('}'));
        if let Some(name) = name {
            parameters.push(json!({
                "name": name, "in": "path", "required": true, "schema": {"type": "string"},
            }));
        }
    }
    let required = route.query["required"].as_array();
    for (name, schema) in route.query["properties"].as_object().into_iter().flatten() {
        let required = required.is_some_and(|names| names.iter().any(|word| word == name));
        let schema = schema.clone();
        parameters.push(json!({"name": name, "in": "query", "required": required,
            "schema": schema}));
    }
    let (kind, schema) = &route.gives;
    let schema = schema.clone().unwrap_or_else(|| json!({"type": "string"}));
    let may = Role::ALL.into_iter().filter(|role| role.may(route.action));
    let may: Vec<&str> = may.map(Role::as_str).collect();
    let places = if route.in_all {
        ", in all namespaces"
    } else {
        ""
    };
    let problem = json!({"$ref": "#/components/schemas/Problem"});
    let mut told = json!({
        "summary": route.about,
        "description": format!("For: {}{places}.", may.join(", ")),
        "x-roundel-action": route.action,
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done.", "content": {*kind: {"schema": schema}}},
            "default": {
                "description": "A problem; its code says which.",
                "content": {"application/problem+json": {"schema": problem}},
            },
        },
    });
    let takes = route.body["properties"].as_object();
    if takes.is_some_and(|fields| !fields.is_empty()) {
        told["requestBody"] = json!({
            "content": {"application/json": {"schema": route.body}},
        });
    }
    told
}
