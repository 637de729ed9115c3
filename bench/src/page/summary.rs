//! What was to be reached, and what was: the first table of the page.

use std::fmt::Write;

use super::tables::{head, sign};
use crate::contest::{
    self, Entrant, GOVERNOR, GOVERNOR_MANY, REDIS, REDIS_MANY, SLIDING, TOLLGATE, TOLLGATE_MANY,
    UNLEASED_MANY, UPSERT, UPSERT_MANY,
};
use crate::contestant::Contestant;
use crate::keys::Keys;
use crate::report::{Figure, digits};
use crate::results::Results;
use crate::whole;

/// A line: its name, the figure, and the two who are compared, with one key and with many.
type Line = (
    &'static str,
    Figure,
    Option<(Entrant, Entrant)>,
    Option<(Entrant, Entrant)>,
);

const OF_GOVERNOR: (Entrant, Entrant) = (TOLLGATE, GOVERNOR);
const OF_GOVERNOR_MANY: (Entrant, Entrant) = (TOLLGATE_MANY, GOVERNOR_MANY);

const LINES: [Line; 7] = [
    (
        "throughput, of tower_governor's (in memory)",
        Figure::Rate,
        Some(OF_GOVERNOR),
        Some(OF_GOVERNOR_MANY),
    ),
    (
        "server CPU per request, of tower_governor's",
        Figure::Cpu,
        Some(OF_GOVERNOR),
        Some(OF_GOVERNOR_MANY),
    ),
    (
        "p99, of tower_governor's",
        Figure::P99,
        Some(OF_GOVERNOR),
        Some(OF_GOVERNOR_MANY),
    ),
    (
        "throughput, of Redis `INCR` per request",
        Figure::Rate,
        Some((TOLLGATE, REDIS)),
        Some((TOLLGATE_MANY, REDIS_MANY)),
    ),
    (
        "throughput, of one sqlx upsert per request",
        Figure::Rate,
        Some((TOLLGATE, UPSERT)),
        Some((TOLLGATE_MANY, UPSERT_MANY)),
    ),
    (
        "leases off: throughput, of Redis `INCR` per request",
        Figure::Rate,
        None,
        Some((UNLEASED_MANY, REDIS_MANY)),
    ),
    (
        "exact sliding window: throughput, of tower_governor's",
        Figure::Rate,
        Some((SLIDING, GOVERNOR)),
        None,
    ),
];

pub(super) fn table(http: &Results, refused: &Results, decisions: &Results) -> String {
    let mut text = head(&[
        "tollgate on a SQLite file",
        "one key",
        "10,000 keys",
        "refused, one key",
    ]);
    for (name, figure, one, many) in LINES {
        let cells = [
            cell(http, figure, one),
            cell(http, figure, many),
            cell(refused, figure, one),
        ];
        let _ = write!(text, "\n| {name} | {} |", cells.join(" | "));
    }
    let [one, many] = [Keys::One, Keys::Many].map(|keys| nanos(decisions, keys));
    let _ = write!(
        text,
        "\n| a decision in memory without HTTP, ns | {one} | {many} |  |"
    );
    text
}

/// What a decision took, with its target, bold where that was missed.
fn nanos(decisions: &Results, keys: Keys) -> String {
    let label = whole::label(Contestant::Tollgate, keys);
    let whole = decisions.wholes.iter().find(|whole| whole.label == label);
    let Some((whole, target)) = whole.and_then(|whole| Some((whole, whole.target?))) else {
        return String::new();
    };
    let told = whole.told();
    match whole.nanos() {
        Some(nanos) if nanos > target => format!("**{told}** (≤ {target:.0})"),
        _ => format!("{told} (≤ {target:.0})"),
    }
}

/// What was found, with its target, bold where that was missed.
fn cell(results: &Results, figure: Figure, pair: Option<(Entrant, Entrant)>) -> String {
    let found = pair.and_then(|(of, to)| found(results, figure, of, to));
    let Some((median, target)) = found else {
        return String::new();
    };
    // Nothing is to be told of answers that were not as expected.
    let Some(median) = median else {
        return "-".to_owned();
    };
    let median_text = digits(median);
    match target {
        Some(target) if figure.is_met(median, target) => {
            format!("{median_text} ({} {target:.2})", sign(figure))
        }
        Some(target) => format!("**{median_text}** ({} {target:.2})", sign(figure)),
        None => median_text,
    }
}

/// The median of a ratio, if there is one, and its target.
fn found(
    results: &Results,
    figure: Figure,
    of: Entrant,
    to: Entrant,
) -> Option<(Option<f64>, Option<f64>)> {
    let by = results.comparisons.iter().find(|by| by.figure == figure)?;
    let labels = [contest::label(of), contest::label(to)];
    let is_it = |ratio: &&crate::report::Ratio| {
        [ratio.of, ratio.to].map(|row| &results.rows[row].label) == labels.each_ref()
    };
    let ratio = by.ratios.iter().find(is_it)?;
    let found = results.rows[ratio.of].compare(&results.rows[ratio.to], figure);
    Some((found.map(|found| found.median), ratio.target))
}
