//! What each metric is, in words: all that the code tells, and all that the guide's page lists.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};

use crate::tidy::{files, source};

/// What was described: kind, name, unit and text.
type Described = (&'static str, String, Option<Unit>, String);

/// Keeps descriptions, and nothing else.
#[derive(Default)]
struct Descriptions(Mutex<Vec<Described>>);

impl Descriptions {
    fn keep(&self, kind: &'static str, name: &KeyName, unit: Option<Unit>, text: &SharedString) {
        let described = (kind, name.as_str().to_owned(), unit, text.to_string());
        self.0.lock().unwrap().push(described);
    }
}

impl Recorder for Descriptions {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.keep("counter", &name, unit, &text);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.keep("gauge", &name, unit, &text);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.keep("histogram", &name, unit, &text);
    }

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

fn described() -> Vec<Described> {
    let descriptions = Descriptions::default();
    with_local_recorder(&descriptions, tollgate::describe_metrics);
    descriptions.0.into_inner().unwrap()
}

/// Each kind and name once.
fn names(described: &[Described]) -> BTreeSet<(String, String)> {
    let names: BTreeSet<_> = described
        .iter()
        .map(|(kind, name, ..)| ((*kind).to_owned(), name.clone()))
        .collect();
    assert_eq!(names.len(), described.len(), "one is described twice");
    names
}

/// The kinds and names that a text tells, by the macros of the facade: `counter!("tollgate_…"`.
fn told(code: &str) -> BTreeSet<(String, String)> {
    let mut told = BTreeSet::new();
    for kind in ["counter", "gauge", "histogram"] {
        for (at, start) in code.match_indices(&format!("{kind}!(")) {
            // `describe_counter!` tells no number.
            if code[..at].ends_with('_') {
                continue;
            }
            let arguments = code[at + start.len()..].trim_start();
            let name = arguments
                .strip_prefix('"')
                .and_then(|rest| rest.split('"').next())
                .unwrap_or_else(|| panic!("write the name out: {kind}!({arguments:.40}"));
            told.insert((kind.to_owned(), name.to_owned()));
        }
    }
    told
}

#[test]
fn every_metric_that_the_code_tells_is_described_and_no_other() {
    let sources = files(&source()).into_iter().map(|file| {
        let text = fs::read_to_string(file).unwrap();
        told(&text)
    });
    assert_eq!(names(&described()), sources.flatten().collect());
}

#[test]
fn a_name_on_a_line_of_its_own_is_seen() {
    let code = "gauge!(\n    \"a\",\n) histogram!(\"b\") describe_counter!(name, text)";
    let expected = [("gauge", "a"), ("histogram", "b")];
    assert_eq!(
        told(code),
        expected
            .map(|(kind, name)| (kind.to_owned(), name.to_owned()))
            .into()
    );
}

#[test]
fn the_described_metrics_are_those_of_the_guides_page() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let page = fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("| `tollgate_")?.split_once('`')?;
        let kind = rest.split('|').nth(1)?.split(',').next()?.trim();
        Some((kind.to_owned(), format!("tollgate_{name}")))
    });
    assert_eq!(names(&described()), rows.collect());
}

#[test]
fn a_description_is_a_sentence_and_its_unit_is_that_of_the_name() {
    for (_, name, unit, text) in described() {
        assert!(text.ends_with('.') && !text.contains('\n'), "{name}");
        assert_eq!(
            name.ends_with("_seconds"),
            unit == Some(Unit::Seconds),
            "{name}"
        );
        assert!(
            !name.ends_with("_total") || unit == Some(Unit::Count),
            "{name}"
        );
    }
}
