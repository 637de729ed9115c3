//! What is allowed: a limit, over a window, by an algorithm, under a name.

mod blocks;
mod constructors;
mod limits;
mod policies;
#[expect(
    clippy::module_inception,
    reason = "a file is named after its one public type"
)]
mod policy;
mod policy_error;
#[cfg(test)]
mod tests;

pub use self::policies::Policies;
pub use self::policy::Policy;
pub use self::policy_error::PolicyError;
