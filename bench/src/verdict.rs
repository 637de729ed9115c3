//! Whether a run has measured the servers, or the loader or noise.

use crate::report::{BUSY, Row, median};

/// How much faster the server without a limiter must be, or the loader is what was measured: a decision of
/// `tower_governor` is some hundredths of what a request costs here, client included.
const VISIBLY_AHEAD: f64 = 1.02;
/// Above this share of one CPU the loader, which is one thread, is what was measured.
const SATURATED: f64 = 0.9;

/// By no limiter beside `tower_governor`, which run the same handler.
pub(crate) fn of_admitted(none: &Row, governor: &Row) -> String {
    let leads = none.ratios_to(governor);
    if leads.is_empty() {
        return "Whether the servers were measured can't be told: no limiter and tower_governor can't be compared.".to_owned();
    }
    let lead = median(&leads);
    let ahead = leads.iter().filter(|lead| **lead > 1.0).count();
    let is_ahead = lead >= VISIBLY_AHEAD && 4 * ahead >= 3 * leads.len();
    let verdict = if !is_ahead {
        "No limiter is NOT visibly ahead of tower_governor: this run measured the loader or noise, not the servers.".to_owned()
    } else if let Some(doubt) = doubt(&[none, governor]) {
        format!(
            "No limiter is ahead of tower_governor, but whether the servers were measured can't be told: {doubt}."
        )
    } else {
        "No limiter is visibly ahead of tower_governor: the servers were measured.".to_owned()
    };
    let busy = none.known(busy).map_or_else(String::new, |busy| {
        format!(
            " Meanwhile the loader used {:.0} % of one CPU.",
            100.0 * busy
        )
    });
    format!(
        "{verdict}\n\
         It made {lead:.3} times the requests (should be {VISIBLY_AHEAD} at least), and more in {ahead} of {} rounds (should be \
         three quarters).{busy}",
        leads.len()
    )
}

/// By the loader's CPU: without a limiter the handler runs, and who refuses does without it, so neither need be ahead.
pub(crate) fn of_refused(rows: &[Row]) -> String {
    let known: Option<Vec<_>> = rows
        .iter()
        .map(|row| Some((row.known(busy)?, row)))
        .collect();
    let most = known.and_then(|known| {
        known
            .into_iter()
            .max_by(|one, other| one.0.total_cmp(&other.0))
    });
    let Some((most, busiest)) = most else {
        return "Whether the servers were measured can't be told: the loader's CPU is not known."
            .to_owned();
    };
    let rows: Vec<_> = rows.iter().collect();
    let verdict = if most > SATURATED {
        "The loader had no CPU left: it was measured, not the server.".to_owned()
    } else if let Some(doubt) = doubt(&rows) {
        format!("Whether the servers were measured can't be told: {doubt}.")
    } else {
        "The loader had CPU left at each of them: the servers were measured.".to_owned()
    };
    format!(
        "{verdict}\nIt used at most {:.0} % of one CPU (should be {:.0} at most), beside {}.",
        100.0 * most,
        100.0 * SATURATED,
        busiest.label
    )
}

/// Why numbers that look right may not be.
fn doubt(rows: &[&Row]) -> Option<String> {
    let mut most = 0.0_f64;
    for row in rows {
        let Some(others) = row.known(|turn| turn.share_of_others) else {
            return Some("what other processes used is not known".to_owned());
        };
        most = most.max(others);
    }
    (most > BUSY).then(|| {
        format!(
            "other processes used up to {:.0} % of the CPUs",
            100.0 * most
        )
    })
}

/// The loader's share of one CPU.
fn busy(turn: &crate::measured::Measured) -> Option<f64> {
    Some(turn.loader_cpu_micros? * turn.per_second / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::Measured;

    fn row(rates: [f64; 4], others: f64, loader_cpu_micros: Option<f64>) -> Row {
        let turn = |per_second| Measured {
            count: 1,
            failed: 0,
            per_second,
            p50_micros: 1.0,
            p99_micros: 1.0,
            cpu_micros: Some(1.0),
            loader_cpu_micros,
            share_of_others: Some(others),
            led_in: 0,
            trips: None,
        };
        Row {
            label: "it".to_owned(),
            turns: rates.map(turn).to_vec(),
        }
    }

    #[test]
    fn servers_were_measured_where_no_limiter_leads_in_most_rounds_and_others_are_quiet() {
        let governor = row([100.0; 4], 0.0, None);
        let verdict = |rates, others| of_admitted(&row(rates, others, None), &governor);
        let leading = [110.0, 110.0, 110.0, 90.0];
        assert!(verdict(leading, 0.0).contains("the servers were measured"));
        assert!(verdict(leading, 0.5).contains("can't be told: other processes"));
        assert!(verdict([200.0, 200.0, 90.0, 90.0], 0.0).contains("NOT visibly ahead"));
        assert!(!verdict(leading, 0.0).contains("NaN"));
        let mut failed = governor.clone();
        failed.turns[0].failed = 1;
        assert!(of_admitted(&governor, &failed).contains("can't be compared"));
    }

    #[test]
    fn a_loader_without_cpu_left_is_what_was_measured() {
        let verdict = |others, micros| of_refused(&[row([100_000.0; 4], others, micros)]);
        assert!(verdict(0.0, Some(9.5)).contains("it was measured"));
        assert!(verdict(0.0, Some(5.0)).contains("the servers were measured"));
        assert!(verdict(0.5, Some(5.0)).contains("can't be told"));
        assert!(verdict(0.0, None).contains("not known"));
    }
}
