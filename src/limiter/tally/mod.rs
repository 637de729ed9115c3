//! Which keys use most and which are refused most, in bounded memory: for operators, in this process, since lately.
//!
//! Nothing is counted until somebody asks for it by [`Limiter::tallies`](super::Limiter).

mod recent;
mod space_saving;
#[expect(
    clippy::module_inception,
    reason = "a file is named after its one type"
)]
mod tally;

pub(crate) use self::recent::{Counted, Top};
pub(super) use self::tally::Tallies;
pub(crate) use self::tally::Tally;
