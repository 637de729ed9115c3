//! Medians, ratios and tables.

use std::fmt::Write;

use crate::measured::Measured;

/// The share of all CPUs above which other processes disturb what is measured.
const BUSY: f64 = 0.05;

/// A contestant's row: a turn for each round.
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) turns: Vec<Measured>,
}

/// A ratio of two rows' rates, and what it should be at least.
#[derive(Clone, Copy)]
pub(crate) struct Ratio {
    pub(crate) of: usize,
    pub(crate) to: usize,
    pub(crate) target: Option<f64>,
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
        let failed: u64 = row.turns.iter().map(|turn| turn.failed).sum();
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

/// The ratios, each the median of the rounds' own ratios, beside its target.
pub(crate) fn ratios(rows: &[Row], ratios: &[Ratio]) -> String {
    let width = 2 * label_width(rows) + 3;
    let mut text = format!(
        "{:width$}  {:>7}  {:>15}  {:>6}",
        "ratios of rates", "median", "rounds", "target"
    );
    for ratio in ratios {
        let (of, to) = (&rows[ratio.of], &rows[ratio.to]);
        let label = format!("{} / {}", of.label, to.label);
        let found = of.ratios_to(to);
        let median = median(&found);
        let range = format!(
            "{} to {}",
            digits(found.iter().copied().fold(f64::INFINITY, f64::min)),
            digits(found.iter().copied().fold(0.0, f64::max))
        );
        let _ = write!(text, "\n{label:width$}  {:>7}  {range:>15}", digits(median));
        if let Some(target) = ratio.target {
            let verdict = if median >= target { "met" } else { "NOT MET" };
            let _ = write!(text, "  {target:>6.2}  {verdict}");
        }
    }
    text
}

impl Row {
    pub(crate) fn median(&self, value: impl Fn(&Measured) -> f64) -> f64 {
        median(&self.turns.iter().map(value).collect::<Vec<_>>())
    }

    /// The ratio of this row's rate to that of another, in each round.
    pub(crate) fn ratios_to(&self, other: &Self) -> Vec<f64> {
        let pairs = self.turns.iter().zip(&other.turns);
        pairs
            .map(|(turn, other)| turn.per_second / other.per_second)
            .collect()
    }

    fn cpu(&self, micros: impl Fn(&Measured) -> Option<f64>) -> String {
        self.known(micros)
            .map_or("-".to_owned(), |micros| format!("{micros:.1}"))
    }

    /// The median of what is known, if it is.
    fn known(&self, value: impl Fn(&Measured) -> Option<f64>) -> Option<f64> {
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
fn digits(ratio: f64) -> String {
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
}
