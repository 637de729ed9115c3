//! Medians, ratios and tables.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::measured::Measured;

/// The share of all CPUs above which other processes disturb what is measured.
pub(crate) const BUSY: f64 = 0.05;

/// A contestant's row: a turn for each round.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) turns: Vec<Measured>,
}

/// A ratio of two rows, and what it should be: at least that of their rates, at most that of all else.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Ratio {
    pub(crate) of: usize,
    pub(crate) to: usize,
    pub(crate) target: Option<f64>,
}

/// What two rows are compared by.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Figure {
    Rate,
    Cpu,
    P99,
}

/// Ratios by one figure.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Comparison {
    pub(crate) figure: Figure,
    pub(crate) ratios: Vec<Ratio>,
}

/// What a ratio was in the rounds.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) median: f64,
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
}

/// What the numbers of a table are about.
#[derive(Clone, Copy)]
pub(crate) struct Wording {
    /// The unit of the rate: `req/s`.
    pub(crate) rate: &'static str,
    /// Whose CPU is told.
    pub(crate) cpu: &'static str,
    /// Whether another process loads, whose CPU is told too.
    pub(crate) has_loader: bool,
}

/// The medians over the rounds, a line for each row.
pub(crate) fn table(rows: &[Row], wording: Wording) -> String {
    let width = label_width(rows);
    let mut text = format!(
        "{:width$}  {:>11}  {:>10}  {:>10}  {:>12}",
        "medians", wording.rate, "p50 us", "p99 us", wording.cpu
    );
    if wording.has_loader {
        let _ = write!(text, "  {:>12}", "loader us");
    }
    let _ = write!(text, "  {:>9}", "others");
    for row in rows {
        let rate = row.median(|turn| turn.per_second);
        let _ = write!(text, "\n{:width$}  {rate:>11.0}", row.label);
        for micros in [
            row.median(|turn| turn.p50_micros),
            row.median(|turn| turn.p99_micros),
        ] {
            let _ = write!(text, "  {micros:>10.1}");
        }
        let _ = write!(text, "  {:>12}", row.cpu(|turn| turn.cpu_micros));
        if wording.has_loader {
            let _ = write!(text, "  {:>12}", row.cpu(|turn| turn.loader_cpu_micros));
        }
        let others = row.known(|turn| turn.share_of_others);
        let others = others.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share));
        let _ = write!(text, "  {others:>9}");
    }
    let rows: Vec<_> = rows.iter().collect();
    text.push_str(&warnings(&rows));
    text
}

/// What is wrong with the numbers, if anything is: a line for each, with a line break before it.
pub(crate) fn warnings(rows: &[&Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let failed = row.failed();
        if failed > 0 {
            let label = &row.label;
            let _ = write!(
                text,
                "\n{label}: {failed} ANSWERS WERE NOT AS EXPECTED, its numbers do not count"
            );
        }
    }
    let others = rows
        .iter()
        .filter_map(|row| row.known(|turn| turn.share_of_others));
    let others = others.fold(0.0, f64::max);
    if others > BUSY {
        let _ = write!(
            text,
            "\nOTHER PROCESSES USED UP TO {:.0} % OF THE CPUS: the numbers are noisy",
            100.0 * others
        );
    }
    if rows
        .iter()
        .flat_map(|row| &row.turns)
        .any(|turn| turn.cpu_micros.is_none())
    {
        text.push_str("\nCPU time is read from /proc, which is not there");
    }
    text
}

/// The ratios of rates, each the median of the rounds' own ratios, beside its target.
pub(crate) fn ratios(rows: &[Row], ratios: &[Ratio]) -> String {
    ratios_by(Figure::Rate, rows, ratios)
}

/// The same of any figure.
pub(crate) fn ratios_by(figure: Figure, rows: &[Row], ratios: &[Ratio]) -> String {
    let width = 2 * label_width(rows) + 3;
    let mut text = format!(
        "{:width$}  {:>7}  {:>15}  {:>7}",
        format!("ratios of {}", figure.label()),
        "median",
        "rounds",
        "target"
    );
    for ratio in ratios {
        let (of, to) = (&rows[ratio.of], &rows[ratio.to]);
        let label = format!("{} / {}", of.label, to.label);
        let Some(found) = of.compare(to, figure) else {
            let _ = write!(text, "\n{label:width$}  {:>7}", "-");
            continue;
        };
        let (median, range) = (digits(found.median), found.range());
        let _ = write!(text, "\n{label:width$}  {median:>7}  {range:>15}");
        if let Some(target) = ratio.target {
            let sign = figure.sign();
            let verdict = if figure.is_met(found.median, target) {
                "met"
            } else {
                "NOT MET"
            };
            let _ = write!(text, "  {sign} {target:>4.2}  {verdict}");
        }
    }
    text
}

impl Figure {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Rate => "rates",
            Self::Cpu => "server CPU per request",
            Self::P99 => "p99",
        }
    }

    /// What is between a ratio and its target.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Rate => ">=",
            Self::Cpu | Self::P99 => "<=",
        }
    }

    pub(crate) fn is_met(self, found: f64, target: f64) -> bool {
        match self {
            Self::Rate => found >= target,
            Self::Cpu | Self::P99 => found <= target,
        }
    }

    fn of(self, turn: &Measured) -> Option<f64> {
        match self {
            Self::Rate => Some(turn.per_second),
            Self::Cpu => turn.cpu_micros,
            Self::P99 => Some(turn.p99_micros),
        }
    }
}

impl Found {
    fn of(ratios: &[f64]) -> Option<Self> {
        (!ratios.is_empty()).then(|| Self {
            median: median(ratios),
            lowest: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            highest: ratios.iter().copied().fold(0.0, f64::max),
        })
    }

    /// From which ratio to which.
    pub(crate) fn range(self) -> String {
        format!("{} to {}", digits(self.lowest), digits(self.highest))
    }
}

impl Row {
    pub(crate) fn median(&self, value: impl Fn(&Measured) -> f64) -> f64 {
        median(&self.turns.iter().map(value).collect::<Vec<_>>())
    }

    /// How many answers were not as expected.
    pub(crate) fn failed(&self) -> u64 {
        self.turns.iter().map(|turn| turn.failed).sum()
    }

    /// What this row is to another one, by the ratios of each round.
    pub(crate) fn compare(&self, other: &Self, figure: Figure) -> Option<Found> {
        Found::of(&self.ratios_by(other, figure))
    }

    /// The ratio of this row's rate to that of another, in each round.
    pub(crate) fn ratios_to(&self, other: &Self) -> Vec<f64> {
        self.ratios_by(other, Figure::Rate)
    }

    /// The same of any figure, where both are known: none where an answer was not as expected, which may have cost less.
    fn ratios_by(&self, other: &Self, figure: Figure) -> Vec<f64> {
        if self.failed() + other.failed() > 0 {
            return Vec::new();
        }
        let pairs = self.turns.iter().zip(&other.turns);
        pairs
            .filter_map(|(turn, other)| Some(figure.of(turn)? / figure.of(other)?))
            .collect()
    }

    fn cpu(&self, micros: impl Fn(&Measured) -> Option<f64>) -> String {
        self.known(micros)
            .map_or("-".to_owned(), |micros| format!("{micros:.1}"))
    }

    /// The median of what is known, if it is.
    pub(crate) fn known(&self, value: impl Fn(&Measured) -> Option<f64>) -> Option<f64> {
        let known: Vec<_> = self.turns.iter().filter_map(value).collect();
        (!known.is_empty()).then(|| median(&known))
    }
}

/// The middle value, or the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// A ratio, with digits left when it is a small one.
pub(crate) fn digits(ratio: f64) -> String {
    if ratio < 0.1 {
        format!("{ratio:.4}")
    } else {
        format!("{ratio:.2}")
    }
}

fn label_width(rows: &[Row]) -> usize {
    rows.iter().map(|row| row.label.len()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "these are exact")]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }
    #[test]
    fn rows_are_compared_round_by_round() {
        let row = |rates: [f64; 3]| Row {
            label: String::new(),
            turns: rates.map(turn).to_vec(),
        };
        let (of, to) = (row([100.0, 220.0, 90.0]), row([50.0, 200.0, 100.0]));
        let found = of.compare(&to, Figure::Rate).map(Found::range);
        assert_eq!(found.as_deref(), Some("0.90 to 2.00"));
        let median = of.compare(&to, Figure::Rate).map(|found| found.median);
        assert_eq!(median.map(digits).as_deref(), Some("1.10"));
        // Nobody has told the CPU.
        assert!(of.compare(&to, Figure::Cpu).is_none());
        let mut failed = to;
        failed.turns[1].failed = 1;
        assert!(of.compare(&failed, Figure::Rate).is_none());
        assert!(failed.compare(&of, Figure::Rate).is_none());
    }

    #[test]
    fn a_rate_should_be_high_and_all_else_low() {
        assert!(Figure::Rate.is_met(1.0, 1.0) && !Figure::Rate.is_met(0.99, 1.0));
        assert!(Figure::P99.is_met(1.0, 1.0) && !Figure::P99.is_met(1.01, 1.0));
        assert!(Figure::Cpu.is_met(0.9, 1.0) && !Figure::Cpu.is_met(1.1, 1.0));
    }

    fn turn(per_second: f64) -> Measured {
        Measured {
            count: 1,
            failed: 0,
            per_second,
            p50_micros: 1.0,
            p99_micros: 1.0,
            cpu_micros: None,
            loader_cpu_micros: None,
            share_of_others: None,
            led_in: 0,
            trips: None,
        }
    }
}
