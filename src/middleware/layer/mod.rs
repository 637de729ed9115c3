//! The layer, which is its own builder: each file has the setters of one concern.

mod answers;
#[cfg(feature = "sqlite")]
mod audit;
mod constructors;
mod fields;
#[expect(
    clippy::module_inception,
    reason = "a file is named after its one public type"
)]
mod layer;
mod plans;
mod requests;
mod shadow;
mod waits;

pub use self::layer::RateLimitLayer;
