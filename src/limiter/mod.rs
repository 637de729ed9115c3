//! Limits without HTTP: a policy, a store, and what happens when the store fails.

mod afterwards;
mod announcement;
mod check;
#[cfg(feature = "metrics")]
mod describe_metrics;
mod events;
mod failure_mode;
mod keys;
#[expect(
    clippy::module_inception,
    reason = "a file is named after its one public type"
)]
mod limiter;
mod limits;
#[cfg(feature = "metrics")]
mod meters;
mod setup;
#[cfg(feature = "admin")]
mod tally;
#[cfg(feature = "admin")]
mod views;

pub(crate) use self::check::{Begun, Check, Held};
#[cfg(feature = "metrics")]
pub use self::describe_metrics::describe_metrics;
pub use self::failure_mode::FailureMode;
pub use self::keys::Keys;
pub use self::limiter::Limiter;
#[cfg(feature = "admin")]
pub(crate) use self::tally::{Counted, Tally, Top};
