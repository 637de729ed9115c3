//! What is answered: the header fields, and the problem document.

pub(crate) mod fields;
mod problem;
mod x_rate_limit;

pub use self::problem::Problem;
pub(crate) use self::problem::{Document, PROBLEM_JSON};
pub use self::x_rate_limit::ResetFormat;
pub(crate) use self::x_rate_limit::write_x_rate_limit;
