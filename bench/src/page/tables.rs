//! Tables in Markdown.

use std::fmt::Write;

use super::numbers::{known_micros, micros, rate};
use crate::instructions::Count;
use crate::keys::grouped;
use crate::report::{Figure, Row, digits, warnings};
use crate::results::Results;
use crate::scale::{Axis, CONTESTANTS, Scale};
use crate::whole::Whole;

/// Lines as they were printed.
pub(super) fn code(lines: &[&str]) -> String {
    format!("```text\n{}\n```", lines.join("\n"))
}

/// How something was measured, folded up.
pub(super) fn settings(lines: &[String]) -> String {
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    format!(
        "<details>\n<summary>How it was measured, and the settings of each</summary>\n\n{}\n\n</details>",
        code(&lines)
    )
}

/// The medians of each row.
pub(super) fn rows(rows: &[Row], unit: &str) -> String {
    let mut text = head(&["medians", unit, "p50, µs", "p99, µs", "CPU, µs"]);
    for row in rows {
        let _ = write!(text, "\n| {} | {} |", row.label, figures(row));
    }
    let rows: Vec<_> = rows.iter().collect();
    warned(text, &rows)
}

/// The same beside the round trips to the server of a store.
pub(super) fn rows_with_trips(rows: &[Row]) -> String {
    let columns = [
        "medians",
        "req/s",
        "p50, µs",
        "p99, µs",
        "CPU, µs",
        "of a round trip",
    ];
    let mut text = head(&columns);
    for row in rows {
        let trips = row
            .known(|turn| turn.trips)
            .map_or_else(String::new, digits);
        let _ = write!(text, "\n| {} | {} | {trips} |", row.label, figures(row));
    }
    let rows: Vec<_> = rows.iter().collect();
    warned(text, &rows)
}

/// What is wrong with the numbers, below them.
fn warned(mut text: String, rows: &[&Row]) -> String {
    for warning in warnings(rows).lines().filter(|line| !line.is_empty()) {
        let _ = write!(text, "\n\n{warning}.");
    }
    text
}

/// The cells of a row.
fn figures(row: &Row) -> String {
    [
        rate(row.median(|turn| turn.per_second)),
        micros(row.median(|turn| turn.p50_micros)),
        micros(row.median(|turn| turn.p99_micros)),
        known_micros(row.known(|turn| turn.cpu_micros)),
    ]
    .join(" | ")
}

/// Each ratio beside its target, and what is to be said of the numbers.
pub(super) fn ratios(results: &Results) -> String {
    let mut text = head(&["ratio", "of", "median", "rounds", "target"]);
    for by in &results.comparisons {
        for ratio in &by.ratios {
            let (of, to) = (&results.rows[ratio.of], &results.rows[ratio.to]);
            let Some(found) = of.compare(to, by.figure) else {
                let _ = write!(
                    text,
                    "\n| {} / {} | {} | - | - |  |",
                    of.label,
                    to.label,
                    by.figure.label(),
                );
                continue;
            };
            let target = ratio.target.map_or_else(String::new, |target| {
                let verdict = if by.figure.is_met(found.median, target) {
                    "met"
                } else {
                    "**missed**"
                };
                format!("{} {target:.2}, {verdict}", sign(by.figure))
            });
            let _ = write!(
                text,
                "\n| {} / {} | {} | {} | {} | {target} |",
                of.label,
                to.label,
                by.figure.label(),
                digits(found.median),
                found.range(),
            );
        }
    }
    for remark in &results.remarks {
        let _ = write!(text, "\n\n{remark}");
    }
    text
}

/// Decisions that were timed as a whole.
pub(super) fn wholes(wholes: &[Whole]) -> String {
    let mut text = head(&["one task, medians", "ns"]);
    for whole in wholes {
        let _ = write!(text, "\n| {} | {} |", whole.label, whole.told());
    }
    for warning in wholes.iter().filter_map(Whole::warning) {
        let _ = write!(text, "\n\n{warning}.");
    }
    text
}

/// Instructions of one decision.
pub(super) fn counts(rows: &[Count]) -> String {
    let mut text = head(&["instructions", "of 1 key", "of 10,000 keys"]);
    for Count { label, one, many } in rows {
        let _ = write!(text, "\n| {label} | {} | {} |", rate(*one), rate(*many));
    }
    text
}

/// All contestants along an axis, folded up: the plots show the same.
pub(super) fn axis(scale: &Scale, axis: Axis) -> String {
    let mut text = head(&[
        axis.label(),
        axis.fixed().as_str(),
        "req/s",
        "p50, µs",
        "p99, µs",
        "server CPU, µs",
    ]);
    let mut rows = Vec::new();
    for value in axis.values() {
        for contestant in CONTESTANTS {
            let point = axis.point(*value);
            if let Some(mut row) = scale.row(contestant, point) {
                let value = grouped(*value);
                let _ = write!(text, "\n| {value} | {} | {} |", row.label, figures(&row));
                // A warning is about this point alone.
                row.label = format!("{} ({})", row.label, point.label());
                rows.push(row);
            }
        }
    }
    let rows: Vec<_> = rows.iter().collect();
    format!(
        "<details>\n<summary>The figures by {}</summary>\n\n{}\n\n</details>",
        axis.label(),
        verdicts(warned(text, &rows), scale, axis)
    )
}

/// Whether the servers were measured, point by point.
fn verdicts(mut text: String, scale: &Scale, axis: Axis) -> String {
    text.push('\n');
    for value in axis.values() {
        let point = axis.point(*value);
        if let Some(verdict) = scale.verdict(point) {
            let _ = write!(
                text,
                "\n- {}: {}",
                point.label(),
                verdict.replace('\n', " ")
            );
        }
    }
    text
}

/// The first lines of a table: its first column, or two, to the left, and numbers to the right.
pub(super) fn head(columns: &[&str]) -> String {
    let align = |name: &&str| if is_number(name) { "---:" } else { "---" };
    let lines: Vec<_> = columns.iter().map(align).collect();
    format!("| {} |\n| {} |", columns.join(" | "), lines.join(" | "))
}

fn is_number(column: &str) -> bool {
    let is_unit = column.ends_with("/s") || column.ends_with("µs");
    is_unit || column.starts_with("of ") || ["median", "ns"].contains(&column)
}

/// What is between a ratio and its target, as readers know it.
pub(super) fn sign(figure: Figure) -> &'static str {
    match figure {
        Figure::Rate => "≥",
        Figure::Cpu | Figure::P99 => "≤",
    }
}
