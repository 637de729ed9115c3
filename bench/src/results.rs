//! What was measured, kept in files: the page and its plots are made of them.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::report::{Comparison, Row};
use crate::whole::Whole;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/results");

/// What a command has measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) environment: String,
    /// Lines: how it was measured, and how the contestants are set.
    pub(crate) settings: Vec<String>,
    pub(crate) rows: Vec<Row>,
    pub(crate) comparisons: Vec<Comparison>,
    /// What is to be said of the numbers.
    pub(crate) remarks: Vec<String>,
    /// Decisions that were timed as a whole.
    #[serde(default)]
    pub(crate) wholes: Vec<Whole>,
}

/// Keeps what a command has measured.
pub(crate) fn save(name: &str, results: &impl Serialize) -> Result<()> {
    let path = path(name);
    fs::create_dir_all(FOLDER)?;
    let mut value = serde_json::to_value(results)?;
    round(&mut value);
    fs::write(&path, lines(&value))
        .with_context(|| format!("{} can't be written", path.display()))?;
    eprintln!("{name}.json is written");
    Ok(())
}

/// What a command measured when it was last told to keep it.
pub(crate) fn load<T: DeserializeOwned>(name: &str) -> Result<T> {
    let path = path(name);
    let text = fs::read_to_string(&path)
        .with_context(|| format!("{} is missing: run `-- {name} --save`", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} can't be read", path.display()))
}

fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{name}.json"))
}

/// More than three decimals tell nothing.
fn round(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(round),
        Value::Object(fields) => fields.values_mut().for_each(round),
        Value::Number(number) if number.is_f64() => {
            let rounded = number.as_f64().map(|number| (number * 1e3).round() / 1e3);
            *value = rounded.into();
        }
        _ => {}
    }
}

/// JSON with a line for each element of its lists, so that what changes can be seen.
fn lines(results: &Value) -> String {
    let mut text = String::new();
    let empty = serde_json::Map::new();
    for (name, value) in results.as_object().unwrap_or(&empty) {
        let separator = if text.is_empty() { "{" } else { "," };
        let _ = write!(text, "{separator}\n\"{name}\": ");
        match value {
            Value::Array(values) => {
                let values: Vec<_> = values.iter().map(Value::to_string).collect();
                let _ = write!(text, "[\n  {}\n]", values.join(",\n  "));
            }
            value => {
                let _ = write!(text, "{value}");
            }
        }
    }
    text + "\n}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() -> Result<()> {
        let written = serde_json::json!({
            "list": [{ "a": 1.5, "b": null }, [2, 3]],
            "none": [],
            "text": "two\nlines",
        });
        let text = lines(&written);
        assert_eq!(serde_json::from_str::<Value>(&text)?, written);
        assert_eq!(text.lines().count(), 10);
        Ok(())
    }

    #[test]
    fn numbers_are_rounded_and_counts_are_not() {
        let mut value = serde_json::json!([0.123_456, 12_345_678_u64, [1.0]]);
        round(&mut value);
        assert_eq!(value, serde_json::json!([0.123, 12_345_678_u64, [1.0]]));
    }
}
