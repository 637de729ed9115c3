//! Which versions of SQLite will do.

use sqlx::{Row, SqliteConnection};
use tracing::Level;

use super::OpenError;
use crate::store::TARGET;

/// The version of a SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(u32, u32, u32);

/// Refuses a SQLite without STRICT tables, RETURNING and `->>` (3.38), and warns of one that can lose data when two
/// connections write and checkpoint at the same moment (before 3.51.3, and the backports 3.44.6 and 3.50.7).
pub(super) async fn check(
    connection: &mut SqliteConnection,
) -> Result<Result<Version, OpenError>, sqlx::Error> {
    let row = sqlx::query("SELECT sqlite_version()")
        .fetch_all(connection)
        .await?;
    let found: String = match row.first() {
        Some(row) => row.try_get(0)?,
        None => return Err(sqlx::Error::RowNotFound),
    };
    let version = Version::of(&found);
    if version.is_too_old() {
        return Ok(Err(OpenError::SqliteTooOld { found }));
    }
    if version.has_wal_reset_fault() {
        tracing::event!(
            name: "tollgate.sqlite_at_risk",
            target: TARGET,
            Level::WARN,
            "SQLite {found} can lose data when several connections write (fixed in 3.51.3): build with a later one"
        );
    }
    Ok(Ok(version))
}

impl Version {
    fn of(text: &str) -> Self {
        let mut numbers = text.split('.').map(|number| number.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        Self(next(), next(), next())
    }

    fn is_too_old(self) -> bool {
        self < Self(3, 38, 0)
    }

    /// Whether it can lose data when two connections write and checkpoint at the same moment.
    pub(super) fn has_wal_reset_fault(self) -> bool {
        let is_fixed = match self {
            Self(3, 44, patch) => patch >= 6,
            Self(3, 50, patch) => patch >= 7,
            version => version >= Self(3, 51, 3),
        };
        !is_fixed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_without_strict_tables_are_too_old() {
        for (version, too_old) in [("3.37.2", true), ("3.7.17", true), ("3.38.0", false)] {
            assert_eq!(Version::of(version).is_too_old(), too_old, "{version}");
        }
    }

    #[test]
    fn the_versions_that_can_lose_data_are_known() {
        let faulty = ["3.37.0", "3.40.1", "3.44.5", "3.50.6", "3.51.2", "3.49.9"];
        let sound = ["3.44.6", "3.50.7", "3.51.3", "3.52.0", "4.0.0"];
        for version in faulty {
            assert!(Version::of(version).has_wal_reset_fault(), "{version}");
        }
        for version in sound {
            assert!(!Version::of(version).has_wal_reset_fault(), "{version}");
        }
    }
}
