//! Errors of the server and of its connection, as those of a store.

use std::error::Error;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::store::StoreError;

/// What servers answer who can't do it now, and have done nothing of it.
const NOT_NOW: [&str; 10] = [
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "BUSY",
    "OOM",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "NOREPLICAS",
    "MISCONF",
    "UNBLOCKED",
];

/// An error after a call was sent. What the server refused was not done; when the connection was lost, or no answer came in time, it
/// may have been.
pub(super) fn failure(error: RedisError) -> StoreError {
    if error.is_timeout() {
        return StoreError::DeadlineExceeded;
    }
    let is_transient = error.code().is_some_and(|code| NOT_NOW.contains(&code));
    StoreError::Database {
        is_transient,
        source: Arc::new(error),
    }
}

/// An error of something that was certainly not done, and may succeed later.
pub(super) fn certain(error: impl Error + Send + Sync + 'static) -> StoreError {
    StoreError::Database {
        is_transient: true,
        source: Arc::new(error),
    }
}

/// Whether what failed so was certainly not done, and may succeed later. A call that was given up may have been.
pub(super) fn is_certain(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Database {
            is_transient: true,
            ..
        }
    )
}

/// An answer that no script of this version gives.
pub(super) fn fault(what: &'static str) -> StoreError {
    StoreError::Database {
        is_transient: false,
        source: Arc::from(Box::<dyn Error + Send + Sync>::from(what)),
    }
}

pub(super) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) || error.code() == Some("NOSCRIPT")
}
