//! What is answered: the header fields, and the problem document.

mod dialect;
pub(crate) mod fields;
mod partition_key;
mod problem;
mod x_rate_limit;

pub use self::dialect::Dialect;
pub(crate) use self::partition_key::PartitionKey;
pub use self::problem::Problem;
pub(crate) use self::problem::{Document, PROBLEM_JSON};
pub use self::x_rate_limit::ResetFormat;
