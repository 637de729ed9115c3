//! What an error of Postgres means.

use std::io::ErrorKind;
use std::sync::Arc;

use sqlx::Error;

use super::PostgresOpenError;
use super::location::Location;
use crate::store::StoreError;

/// What an error means for the connection, and for the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The call was undone, and the same call may succeed at once: another node was in the way.
    Again,
    /// The call was undone, and the connection is sound.
    Undone { is_transient: bool },
    /// The call was undone, and the connection is of no use: the server ends, or only reads, or the tables are gone.
    Ended,
    /// The connection broke. Whether the call was done is not known.
    InDoubt,
}

impl Meaning {
    pub(super) fn of(error: &Error) -> Self {
        let Some(code) = code(error) else {
            let is_own = matches!(
                error,
                Error::ColumnDecode { .. }
                    | Error::ColumnNotFound(_)
                    | Error::Decode(_)
                    | Error::Encode(_)
                    | Error::RowNotFound
            );
            return if is_own {
                Self::Undone {
                    is_transient: false,
                }
            } else {
                Self::InDoubt
            };
        };
        match &*code {
            // Deadlocks, and transactions that can't be put in an order.
            "40P01" | "40001" => Self::Again,
            // The server is shut down, starts, or has become a replica; or a schema, table or function is not there any more, and is
            // made again.
            "57P01" | "57P02" | "57P03" | "57P05" | "25006" | "3F000" | "42P01" | "42883" => {
                Self::Ended
            }
            // A statement took too long, or waited too long for a lock; no room on a disk, in memory or for connections.
            "57014" | "55P03" => Self::Undone { is_transient: true },
            code if code.starts_with("53") => Self::Undone { is_transient: true },
            _ => Self::Undone {
                is_transient: false,
            },
        }
    }
}

pub(super) fn code(error: &Error) -> Option<String> {
    let database = error.as_database_error()?;
    database.code().map(std::borrow::Cow::into_owned)
}

/// The error of a call.
pub(super) fn store_error(error: Error) -> StoreError {
    let is_transient = match Meaning::of(&error) {
        Meaning::Again | Meaning::Ended => true,
        Meaning::Undone { is_transient } => is_transient,
        // What is certain not to be stored is tried again.
        Meaning::InDoubt => false,
    };
    StoreError::Database {
        is_transient,
        source: Arc::new(error),
    }
}

/// The error of an opening.
pub(super) fn open_error(location: &Location, error: Error) -> PostgresOpenError {
    let unreachable = |source| PostgresOpenError::Unreachable {
        server: location.server(),
        source,
    };
    if let Some(code) = code(&error) {
        let source = Arc::new(error);
        return match &*code {
            "28000" | "28P01" | "3D000" => PostgresOpenError::Refused { source },
            "42501" => PostgresOpenError::NotPermitted { source },
            "25006" => PostgresOpenError::ReadOnly,
            // Another client's statement has the name, or it is not on the connection that the pooler has taken now.
            "42P05" | "26000" => PostgresOpenError::Pooler { source },
            // A server knows all of them.
            "08P01" if source.to_string().contains("startup parameter") => {
                PostgresOpenError::Pooler { source }
            }
            "57P01" | "57P02" | "57P03" | "57014" | "55P03" => unreachable(source),
            code if code.starts_with("53") || code.starts_with("08") => unreachable(source),
            _ => PostgresOpenError::Failed(source),
        };
    }
    match error {
        // So rustls says that it does not trust a certificate.
        Error::Io(source) if source.kind() == ErrorKind::InvalidData => PostgresOpenError::Tls {
            source: Arc::new(source),
        },
        Error::Io(source) => unreachable(Arc::new(source)),
        Error::Tls(source) if source.to_string().contains("without") => PostgresOpenError::NoTls,
        Error::Tls(source) => PostgresOpenError::Tls {
            source: Arc::from(source),
        },
        error => PostgresOpenError::Failed(Arc::new(error)),
    }
}
