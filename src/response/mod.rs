//! What is answered: the header fields, the problem document, the gRPC status.

mod dialect;
pub(crate) mod fields;
pub(crate) mod grpc;
mod partition_key;
mod problem;
mod retry_info;
mod x_rate_limit;

pub use self::dialect::Dialect;
pub(crate) use self::partition_key::PartitionKey;
pub use self::problem::Problem;
pub(crate) use self::problem::{Document, PROBLEM_JSON};
pub use self::x_rate_limit::ResetFormat;
