//! A batch of charges that one statement can't decide: its rows are read, `limit` decides, the rows are written back. All
//! of it is one transaction, in two calls.
//!
//! `reading.rs` reads, `states.rs` holds the batch's states until they are written, `ahead.rs` grants what is asked for ahead of
//! charges, `waits.rs` finds when refused charges fit.

mod ahead;
mod reading;
mod states;
mod waits;

use std::sync::LazyLock;
use std::time::Duration;

use sqlx::sqlite::SqliteRow;

use self::ahead::with_ahead;
use self::states::Ledger;
use super::Database;
use super::tables::{buckets, events, limits, windows};
use crate::clock::{self, Clock};
use crate::limit::Timestamp;
use crate::store::engine::{Batch, Grant};
use crate::store::{Charge, Outcome, StoreError};

/// Reads all states of a batch, and the limits that were set at run time. `$1` to `$3` are arrays for the three tables of states,
/// `$4` is now, `$5` is an array for the limits.
static READ: LazyLock<String> = LazyLock::new(|| {
    let tables = [
        windows::SELECT,
        events::SELECT,
        buckets::SELECT,
        limits::SELECT,
    ];
    tables.join(";")
});
/// The same as one transaction, which sees the tables at one moment. It needs no lock.
static LOOK: LazyLock<String> = LazyLock::new(|| format!("BEGIN;{};COMMIT", *READ));
/// The same, with the write lock taken first: a transaction that reads and then writes would be refused at once when
/// another process has written in between.
static BEGIN: LazyLock<String> = LazyLock::new(|| format!("BEGIN IMMEDIATE;{}", *READ));
/// Writes all states of a batch. `$1`, `$2` and `$4` are rows for the three tables, `$3` is what events to trim.
static WRITE: LazyLock<String> = LazyLock::new(|| {
    [
        windows::INSERT,
        events::INSERT,
        events::TRIM,
        buckets::INSERT,
        "COMMIT",
    ]
    .join(";")
});
const COMMIT: &str = "COMMIT";

/// The instant of a batch is read before the lock is waited for. When that took longer, others may have stored what lies
/// so far ahead of it that it would look like a clock that has stepped back.
const LATEST_LOCK: Duration = Duration::from_millis(900);
const ATTEMPTS: u32 = 3;

#[cfg(test)]
pub(super) fn statements() -> [&'static str; 7] {
    [
        &READ,
        &LOOK,
        &BEGIN,
        &WRITE,
        events::FIND,
        events::MOVE,
        events::REBASE,
    ]
}

/// What became of a batch.
pub(super) struct Applied {
    pub(super) answers: Vec<Result<Outcome, StoreError>>,
    /// What was granted of each thing that was asked for ahead.
    pub(super) grants: Vec<Grant>,
    /// Rows that are there now and were not before, and the reverse.
    pub(super) new_rows: u64,
    pub(super) deleted_rows: u64,
}

/// Charges a batch. With a cap, `rows_left` is how many rows may be added: a charge that needs more gets an error.
/// `None` stands for a batch that was not applied, since rows must be deleted first.
pub(super) async fn charge(
    database: &mut Database,
    batch: Batch<'_>,
    clock: &Clock,
    cap: Option<Cap>,
) -> Result<Option<Applied>, StoreError> {
    let applied = charge_in_transaction(database, batch, clock, cap).await;
    if !matches!(applied, Ok(Some(_))) {
        database.roll_back().await;
    }
    applied
}

/// How many rows a batch may add.
#[derive(Clone, Copy)]
pub(super) struct Cap {
    pub(super) rows_left: u64,
    /// Whether to apply what fits when not all does.
    pub(super) is_last_attempt: bool,
}

async fn charge_in_transaction(
    database: &mut Database,
    batch: Batch<'_>,
    clock: &Clock,
    cap: Option<Cap>,
) -> Result<Option<Applied>, StoreError> {
    let asks = with_ahead(batch);
    let (mut ledger, rows) = begin(database, &asks, clock).await?;
    let limited = ledger.limited(&asks);
    let asks = limited.as_deref().unwrap_or(&asks);
    if limited.is_some() {
        ledger = Ledger::of(asks, ledger.now());
        ledger.read(&rows)?;
    }
    ledger.mend(database).await?;
    let (charges, ahead) = asks.split_at(batch.charges.len());
    let mut answers = ledger.decide(charges, cap);
    if ledger.is_short && cap.is_some_and(|cap| !cap.is_last_attempt) {
        return Ok(None);
    }
    if let Some(finds) = ledger.finds()? {
        let rows = database
            .within(sqlx::query(events::FIND).bind(finds))
            .await?;
        ledger.tell_waits(&rows, &mut answers)?;
    }
    // After all charges: what they ask for comes first.
    let grants = ledger.grant(ahead, (charges, &answers), cap.is_some());
    let deleted_rows = ledger.write(database).await?;
    Ok(Some(Applied {
        answers,
        grants,
        new_rows: ledger.new_rows,
        deleted_rows,
    }))
}

/// Takes the lock, and reads what the batch needs.
async fn begin<'a>(
    database: &mut Database,
    charges: &'a [Charge],
    clock: &Clock,
) -> Result<(Ledger<'a>, Vec<SqliteRow>), StoreError> {
    for _ in 0..ATTEMPTS {
        let asked_at = clock::monotonic();
        let now = clock.now();
        let mut ledger = Ledger::of(charges, now);
        let query = ledger.bound(&BEGIN)?;
        let rows = database.begin(query).await?;
        // The monotonic clock stands still while the machine sleeps, the other one may be set.
        let waited = clock::monotonic().duration_since(asked_at);
        if waited.max(clock.now().saturating_duration_since(now)) < LATEST_LOCK {
            ledger.read(&rows)?;
            return Ok((ledger, rows));
        }
        database.roll_back().await;
    }
    Err(StoreError::DeadlineExceeded)
}

/// Looks, without changing anything.
pub(super) async fn look(
    database: &mut Database,
    looks: &[Charge],
    now: Timestamp,
) -> Result<Vec<Outcome>, StoreError> {
    let mut ledger = Ledger::of(looks, now);
    let rows = database.read(ledger.bound(&LOOK)?).await?;
    ledger.read(&rows)?;
    let limited = ledger.limited(looks);
    let looks = limited.as_deref().unwrap_or(looks);
    if limited.is_some() {
        ledger = Ledger::of(looks, now);
        ledger.read(&rows)?;
    }
    let mut answers = Vec::with_capacity(looks.len());
    for (index, look) in looks.iter().enumerate() {
        let found = look.look(now, &ledger.states(look, index));
        ledger.note_waits(look, index, &found);
        answers.push(Ok(Outcome { at: now, found }));
    }
    if let Some(finds) = ledger.finds()? {
        // What has changed since can make it tell a shorter wait, for what was freed, and no other.
        let query = sqlx::query(events::FIND).bind(finds);
        let rows = database.read(query).await?;
        ledger.tell_waits(&rows, &mut answers)?;
    }
    answers.into_iter().collect()
}

/// Which of the charges have all the rows that they would write to, and the charges under the limits that were set at run time,
/// if any were.
pub(super) async fn known(
    database: &mut Database,
    charges: &[Charge],
    now: Timestamp,
) -> Result<(Vec<bool>, Option<Vec<Charge>>), StoreError> {
    let mut ledger = Ledger::of(charges, now);
    let rows = database.read(ledger.bound(&READ)?).await?;
    ledger.read(&rows)?;
    Ok((ledger.known(), ledger.limited(charges)))
}
