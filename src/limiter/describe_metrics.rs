//! What each number is, in words: names, units and texts of all that tollgate tells by the facade `metrics`.
//!
//! The numbers themselves are told where they come about: `meters.rs` here, and those of the store.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

use self::Kind::{Counter, Gauge, Histogram};

/// Every metric. `docs/metrics.md` has the same names, and a test holds both to what the code tells.
const METRICS: [(Kind, &str, Option<Unit>, &str); 9] = [
    (
        Counter,
        "tollgate_decisions_total",
        Some(Unit::Count),
        "Decisions, once for each of their policies.",
    ),
    (
        Counter,
        "tollgate_charges_total",
        Some(Unit::Count),
        "Charges, by what has answered them.",
    ),
    (
        Histogram,
        "tollgate_charge_duration_seconds",
        Some(Unit::Seconds),
        "From the queue's entrance to the answer, of charges that the database has answered.",
    ),
    (
        Histogram,
        "tollgate_batch_size",
        Some(Unit::Count),
        "How many charges one transaction has decided.",
    ),
    (
        Gauge,
        "tollgate_queue_depth",
        Some(Unit::Count),
        "How many charges and looks waited when the store's writer last took what waits.",
    ),
    (
        Counter,
        "tollgate_store_errors_total",
        Some(Unit::Count),
        "Charges and looks that the store has not answered.",
    ),
    (
        Gauge,
        "tollgate_store_degraded",
        None,
        "1 while the store fails and each limiter's failure mode decides, otherwise 0.",
    ),
    (
        Counter,
        "tollgate_swept_rows_total",
        Some(Unit::Count),
        "Expired rows that sweeps have deleted.",
    ),
    (
        Counter,
        "tollgate_audit_dropped_total",
        Some(Unit::Count),
        "Allowed requests that were to be recorded, and are not.",
    ),
];

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Tells the recorder of the facade [`metrics`](https://docs.rs/metrics) what each of tollgate's metrics is: its unit,
/// and the text that Prometheus shows as `# HELP`.
///
/// Call it once, after the recorder is installed; without one it does nothing. Layers and stores may be made before or
/// after. It tells no number, so a metric without one stays absent. Calling it again changes nothing.
///
/// # Examples
///
/// ```
/// use metrics_util::debugging::DebuggingRecorder;
///
/// // In a server it is that of an exporter.
/// DebuggingRecorder::new().install()?;
/// tollgate::describe_metrics();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn describe_metrics() {
    for (kind, name, unit, text) in METRICS {
        match (kind, unit) {
            (Counter, Some(unit)) => describe_counter!(name, unit, text),
            (Counter, None) => describe_counter!(name, text),
            (Gauge, Some(unit)) => describe_gauge!(name, unit, text),
            (Gauge, None) => describe_gauge!(name, text),
            (Histogram, Some(unit)) => describe_histogram!(name, unit, text),
            (Histogram, None) => describe_histogram!(name, text),
        }
    }
}
