//! Limits that are set at run time, for a key or for all keys of a policy.

mod in_force;
mod limit;
mod stored_limit;

pub(crate) use self::in_force::{InForce, Until};
pub use self::limit::Limit;
pub use self::stored_limit::StoredLimit;
