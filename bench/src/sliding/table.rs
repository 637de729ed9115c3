//! What was found, in tables: a line for each limit, with both methods beside each other.

use std::fmt::Write;

use super::window::{Asked, Method};
use super::{CASES, COUNTED, Entrant, LIMITS};
use crate::report::{self, Row, median};
use crate::sqlite_work::Work;

/// What a decision at the highest limit may cost of this crate, to one at the lowest.
const TARGET: f64 = 1.5;

/// What a cell of each table holds, in the widths that `work` and `time` write.
const WORK_CELL: &str = "steps    ratio  pages read  written";
const TIME_CELL: &str = "us    ratio           rounds";

pub(super) fn of(entrants: &[Entrant]) -> String {
    let mut text = format!(
        "SQLite's work for a decision of 1 task, on average of {COUNTED}; the ratio is that of the steps to limit {}\n{}",
        LIMITS[0],
        head(WORK_CELL)
    );
    for (index, asked) in [Asked::Refused, Asked::Admitted].into_iter().enumerate() {
        for limit in LIMITS {
            line(
                &mut text,
                asked.label(),
                entrants,
                limit,
                |entrant, first| work(entrant.work[index], first.work[index]),
            );
        }
    }
    let _ = write!(
        text,
        "\n\nTime for a decision, medians; of many tasks it is the time of all by the decisions of all\n{}",
        head(TIME_CELL)
    );
    for index in 0..CASES.len() {
        let case = case_of(&entrants[0].rows[index]);
        for limit in LIMITS {
            line(&mut text, case, entrants, limit, |entrant, first| {
                time(&entrant.rows[index], &first.rows[index])
            });
        }
    }
    let rows: Vec<_> = entrants.iter().flat_map(|entrant| &entrant.rows).collect();
    text.push_str(&report::warnings(&rows));
    let _ = write!(text, "\n\n{}", verdict(entrants));
    text
}

/// Two lines: the methods, and what a cell holds.
fn head(cell: &str) -> String {
    let [ours, classic] = [Method::Tollgate, Method::Classic].map(Method::label);
    format!(
        "{:32}  {ours:>38}  {classic:>38}\n{:32}  {cell:>38}  {cell:>38}",
        "", ""
    )
}

/// The last part of a row's label.
fn case_of(row: &Row) -> &str {
    row.label.splitn(3, ", ").last().unwrap_or_default()
}

/// A line of a limit: what `cell` says of each method, compared with the method's first limit.
fn line(
    text: &mut String,
    case: &str,
    entrants: &[Entrant],
    limit: u32,
    cell: impl Fn(&Entrant, &Entrant) -> String,
) {
    let _ = write!(text, "\n{:32}", format!("{case}, limit {limit}"));
    for entrant in entrants.iter().filter(|entrant| entrant.limit == limit) {
        let _ = write!(
            text,
            "  {:>38}",
            cell(entrant, first(entrants, entrant.method))
        );
    }
}

fn first(entrants: &[Entrant], method: Method) -> &Entrant {
    let of_method = |entrant: &&Entrant| entrant.method == method;
    // There is one: the entrant that is compared, at the latest.
    entrants.iter().find(of_method).unwrap_or(&entrants[0])
}

fn last(entrants: &[Entrant], method: Method) -> &Entrant {
    let of_method = |entrant: &&Entrant| entrant.method == method;
    entrants.iter().rfind(of_method).unwrap_or(&entrants[0])
}

fn work(work: Work, first: Work) -> String {
    let each = |count: u64| count as f64 / f64::from(COUNTED);
    format!(
        "{:.0}  {:>7.2}  {:>10.1}  {:>7.1}",
        each(work.steps),
        ratio(work, first),
        each(work.pages_read),
        each(work.pages_written)
    )
}

fn ratio(work: Work, first: Work) -> f64 {
    work.steps as f64 / first.steps as f64
}

fn time(row: &Row, first: &Row) -> String {
    let micros = row.median(|turn| 1e6 / turn.per_second);
    // Of rates, hence the other way round.
    let ratios = first.ratios_to(row);
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    let range = format!("{least:.2} to {most:.2}");
    format!("{micros:.1}  {:>7.2}  {range:>15}", median(&ratios))
}

/// Whether this crate's costs stay the same.
fn verdict(entrants: &[Entrant]) -> String {
    let (first, last) = (
        first(entrants, Method::Tollgate),
        last(entrants, Method::Tollgate),
    );
    let mut text = format!(
        "{}, limit {} to limit {}, at most {TARGET:.2}",
        Method::Tollgate.label(),
        last.limit,
        first.limit
    );
    let mut judge = |what: &str, ratio: f64| {
        let verdict = if ratio <= TARGET { "met" } else { "NOT MET" };
        let _ = write!(text, "\n  {what:30}  {ratio:>5.2}  {verdict}");
    };
    for (index, asked) in [Asked::Refused, Asked::Admitted].into_iter().enumerate() {
        let ratio = ratio(last.work[index], first.work[index]);
        judge(&format!("steps, {}", asked.label()), ratio);
    }
    for (row, first) in last.rows.iter().zip(&first.rows) {
        judge(
            &format!("time, {}", case_of(row)),
            median(&first.ratios_to(row)),
        );
    }
    text
}
