//! A batch of charges that one statement can't decide: a function on the server locks, reads, decides and writes in one call.
//!
//! `slots.rs` is what it is told, `replay.rs` has the library's own algorithms decide the same from what the function has found:
//! that makes the answers, and when the two differ the batch is an error. `waits.rs` finds when refused charges fit.

mod replay;
mod slots;
mod waits;

use sqlx::postgres::PgRow;

use self::replay::Replay;
use self::slots::Slots;
use super::database::Database;
use super::rows::{column, fault, instant};
use crate::clock::{self, Clock};
use crate::limit::Timestamp;
use crate::limit::few::Few;
use crate::store::engine::{Batch, Charged};
use crate::store::{Charge, Outcome, StoreError};

/// Charges a batch.
pub(super) async fn charge(
    database: &mut Database,
    batch: Batch<'_>,
    clock: &Clock,
) -> Result<Charged, StoreError> {
    let ahead = batch.ahead.iter().map(|ahead| Charge {
        parts: Few::one(ahead.part.clone()),
        cost: ahead.units,
        is_forced: false,
    });
    let asks: Vec<_> = batch.charges.iter().cloned().chain(ahead).collect();
    let slots = Slots::of(&asks, batch.charges.len());
    let (given, shift) = database.moment(clock);
    let sent = clock::monotonic();
    let rows = database
        .call(|statements| slots.charge(statements, given, shift))
        .await?;
    let at = decided_at(&rows)?;
    database.heard(sent, at, clock);
    let mut replay = Replay::of(&slots, &rows, at)?;
    let limited = replay.limited(&asks);
    let asks = limited.as_deref().unwrap_or(&asks);
    let (charges, ahead) = asks.split_at(batch.charges.len());
    let mut answers = replay.decide(charges);
    let grants = replay.grant(ahead, (charges, &answers));
    replay.check()?;
    replay.find_waits(database, &mut answers).await;
    let answers = answers.into_iter().map(Ok).collect();
    Ok(Charged::of(answers, grants))
}

/// Looks, without changing anything.
pub(super) async fn look(
    database: &mut Database,
    looks: &[Charge],
    clock: &Clock,
) -> Result<Vec<Outcome>, StoreError> {
    let slots = Slots::of(looks, looks.len());
    let (given, shift) = database.moment(clock);
    let sent = clock::monotonic();
    let rows = database
        .call(|statements| slots.read(statements, given, shift))
        .await?;
    let at = decided_at(&rows)?;
    database.heard(sent, at, clock);
    let mut replay = Replay::of(&slots, &rows, at)?;
    let limited = replay.limited(looks);
    let looks = limited.as_deref().unwrap_or(looks);
    let mut answers = replay.look(looks);
    // What has changed since can make it tell a shorter wait, for what was freed, and no other.
    replay.find_waits(database, &mut answers).await;
    Ok(answers)
}

fn decided_at(rows: &[PgRow]) -> Result<Timestamp, StoreError> {
    let row = rows.first();
    let row = row.ok_or_else(|| fault("a batch came back without rows"))?;
    column(row, "decided_at").map(instant)
}
