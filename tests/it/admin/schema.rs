//! The file that describes the API, and whether answers are as it says. A keyword that is not known here fails: nothing passes unchecked.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use serde_json::Value;

use crate::support::Answer;

/// Keywords that say nothing about what is valid.
const ANNOTATIONS: [&str; 3] = ["description", "examples", "default"];

/// The file.
pub(super) struct OpenApi(Value);

/// An operation of it.
pub(super) struct Operation<'a> {
    pub(super) method: String,
    pub(super) path: &'a str,
    pub(super) statuses: Vec<u16>,
}

impl OpenApi {
    pub(super) fn read() -> &'static Self {
        static FILE: OnceLock<OpenApi> = OnceLock::new();
        FILE.get_or_init(|| {
            let text = include_str!("../../../docs/admin.openapi.json");
            Self(serde_json::from_str(text).unwrap())
        })
    }

    pub(super) fn file(&self) -> &Value {
        &self.0
    }

    pub(super) fn operations(&self) -> Vec<Operation<'_>> {
        let paths = self.0["paths"].as_object().unwrap().iter();
        let operations = paths.flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().iter();
            methods.map(move |(method, operation)| {
                let statuses = operation["responses"].as_object().unwrap().keys();
                Operation {
                    method: method.to_uppercase(),
                    path,
                    statuses: statuses.map(|status| status.parse().unwrap()).collect(),
                }
            })
        });
        operations.collect()
    }

    /// Checks an answer, and says which properties of the schemas it has shown.
    pub(super) fn check(&self, method: &str, target: &str, answer: &Answer) -> BTreeSet<String> {
        let path = target.split('?').next().unwrap();
        assert_eq!(answer.only("cache-control"), "no-store", "{target}");
        assert_eq!(answer.only("x-content-type-options"), "nosniff", "{target}");
        let responses = &self.0["paths"][path][method.to_lowercase()]["responses"];
        let mut seen = BTreeSet::new();
        if responses.is_null() {
            // Of what the file does not have, a path or a method, only that can be said.
            assert_eq!(answer.status, 405, "{method} {target}");
            let problem = "/components/schemas/Problem";
            self.validate(&answer.json(), problem, &mut seen);
            return seen;
        }
        let status = answer.status.to_string();
        let response = &responses[&status];
        assert!(
            !response.is_null(),
            "{method} {target} answers {status}: {}",
            answer.text()
        );
        let response = self.resolved(response);
        for (name, header) in response["headers"].as_object().into_iter().flatten() {
            let is_required = header["required"] == true;
            assert!(
                !is_required || answer.headers.contains_key(name),
                "{target}: no {name}"
            );
        }
        let content = response["content"].as_object().unwrap();
        let (kind, content) = content.iter().next().unwrap();
        assert_eq!(answer.only("content-type"), kind, "{target}");
        self.validate_by(&answer.json(), &content["schema"], "", &mut seen);
        seen
    }

    /// All properties that the schemas have.
    pub(super) fn properties(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        collect(
            &self.0["components"]["schemas"],
            "/components/schemas",
            &mut all,
        );
        all
    }

    fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(path) => self.0.pointer(&path[1..]).unwrap(),
            None => value,
        }
    }

    fn validate(&self, value: &Value, pointer: &str, seen: &mut BTreeSet<String>) {
        let schema = self.0.pointer(pointer).unwrap();
        self.validate_by(value, schema, pointer, seen);
    }

    fn validate_by(&self, value: &Value, schema: &Value, at: &str, seen: &mut BTreeSet<String>) {
        for (keyword, rule) in schema.as_object().unwrap() {
            match &**keyword {
                "$ref" => self.validate(value, &rule.as_str().unwrap()[1..], seen),
                "type" => assert!(
                    is_of(value, rule.as_str().unwrap()),
                    "{at}: {value} is no {rule}"
                ),
                // Told apart by their types.
                "oneOf" => {
                    let alternatives = rule.as_array().unwrap().iter();
                    let mut fitting =
                        alternatives.filter(|one| is_of(value, one["type"].as_str().unwrap()));
                    let one = fitting
                        .next()
                        .unwrap_or_else(|| panic!("{at}: {value} is none of {rule}"));
                    self.validate_by(value, one, at, seen);
                }
                "const" => assert_eq!(value, rule, "{at}"),
                "enum" => assert!(rule.as_array().unwrap().contains(value), "{at}: {value}"),
                "minimum" => assert!(value.as_f64() >= rule.as_f64(), "{at}: {value}"),
                "maximum" => assert!(value.as_f64() <= rule.as_f64(), "{at}: {value}"),
                "maxItems" => {
                    let items = value.as_array().unwrap().len() as u64;
                    assert!(items <= rule.as_u64().unwrap(), "{at}: {items} items");
                }
                "format" => assert!(
                    is_written(value.as_str().unwrap(), rule.as_str().unwrap()),
                    "{at}: {value}"
                ),
                "required" => {
                    for name in rule.as_array().unwrap() {
                        assert!(
                            !value[name.as_str().unwrap()].is_null(),
                            "{at}: no {name} in {value}"
                        );
                    }
                }
                "items" => {
                    for item in value.as_array().unwrap() {
                        self.validate_by(item, rule, &format!("{at}/items"), seen);
                    }
                }
                "properties" => {
                    for (name, schema) in rule.as_object().unwrap() {
                        if let Some(value) = value.get(name) {
                            let at = format!("{at}/properties/{name}");
                            self.validate_by(value, schema, &at, seen);
                            seen.insert(at);
                        }
                    }
                }
                "additionalProperties" => {
                    assert_eq!(rule, false, "{at}");
                    let known = schema["properties"].as_object().unwrap();
                    for name in value.as_object().unwrap().keys() {
                        assert!(known.contains_key(name), "{at}: {name} is not in the file");
                    }
                }
                other => assert!(ANNOTATIONS.contains(&other), "{at}: {other} is not checked"),
            }
        }
    }
}

fn collect(schema: &Value, at: &str, all: &mut BTreeSet<String>) {
    for (name, value) in schema.as_object().into_iter().flatten() {
        let at = format!("{at}/{name}");
        if at.rsplit('/').nth(1) == Some("properties") {
            all.insert(at.clone());
        }
        collect(value, &at, all);
    }
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        _ => panic!("{kind} is not checked"),
    }
}

fn is_written(text: &str, format: &str) -> bool {
    let (date, time) = text.split_once('T').unwrap_or((text, ""));
    let is_date = date.parse::<tollgate::Day>().is_ok();
    let digits = |text: &str| text.replace(|char: char| char.is_ascii_digit(), "0");
    match format {
        "date" => is_date && !text.contains('T'),
        "date-time" => is_date && digits(time) == "00:00:00.000Z",
        _ => panic!("{format} is not checked"),
    }
}
