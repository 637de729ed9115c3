//! The requests that each algorithm is shown: bursts, a client that hammers, and silence.

/// What is shown, in milliseconds.
pub(super) const LENGTH: i64 = 330_000;

/// The instants of the requests, in milliseconds from the beginning, which is the start of a window.
pub(super) fn instants() -> Vec<i64> {
    let mut instants = Vec::new();
    // Ten right before a boundary, and ten right after it.
    every(&mut instants, 1_000, 50_000..60_000);
    every(&mut instants, 1_000, 60_000..70_000);
    // Half a window later.
    every(&mut instants, 1_000, 92_000..102_000);
    // Two minutes of hammering, which begin somewhere in a window.
    every(&mut instants, 1_000, 140_000..260_000);
    // After a rest, all at once.
    every(&mut instants, 100, 309_000..310_500);
    instants
}

fn every(instants: &mut Vec<i64>, millis: usize, span: std::ops::Range<i64>) {
    instants.extend(span.step_by(millis));
}
