//! What becomes of a key that was refused.

use std::sync::Arc;
use std::time::Duration;

use super::policy::{LONGEST_WINDOW, expect};
use super::{Policy, PolicyError};
use crate::limit::algorithm::block::Blocking;

impl Policy {
    /// Blocks a key that was refused: for so long every request of it is refused, whatever it has left.
    ///
    /// It begins anew with the first refusal after it; what is refused while it lasts does not make it longer, so a wait that is
    /// told is never too short. A [reset](crate::Limiter::reset) ends it. It is kept in the store, and holds for all that share the
    /// counter.
    ///
    /// # Panics
    ///
    /// When the duration is 0, longer than ten years, or has a fraction of a millisecond. [`Policy::try_block_after`] returns an
    /// error instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Policy;
    ///
    /// let login = Policy::sliding(5, 900).name("login").block_for(Duration::from_hours(1));
    /// assert_eq!(login.to_string(), "login: 5 per 900 s, sliding window, blocks for 3600 s");
    /// ```
    #[must_use]
    #[track_caller]
    pub fn block_for(self, lasts: Duration) -> Self {
        self.block_after(1, lasts)
    }

    /// Blocks a key that was refused so many times in a row; see [`block_for`](Self::block_for). An admitted request ends the row,
    /// and so does a whole window without a refusal.
    ///
    /// # Panics
    ///
    /// As [`block_for`](Self::block_for), and when the number is 0.
    #[must_use]
    #[track_caller]
    pub fn block_after(self, refusals: u32, lasts: Duration) -> Self {
        expect(self.try_block_after(refusals, lasts))
    }

    /// Blocks a key that was refused so many times in a row; see [`block_after`](Self::block_after).
    ///
    /// # Errors
    ///
    /// [`PolicyError`] when the number is 0, or the duration is 0, longer than ten years, or has a fraction of a millisecond.
    pub fn try_block_after(mut self, refusals: u32, lasts: Duration) -> Result<Self, PolicyError> {
        let is_whole = lasts.subsec_nanos().is_multiple_of(1_000_000);
        if refusals == 0 || lasts.is_zero() || lasts > LONGEST_WINDOW || !is_whole {
            return Err(PolicyError::InvalidBlock);
        }
        Arc::make_mut(&mut self.built).blocking = Some(Blocking {
            after: refusals,
            lasts,
        });
        Ok(self)
    }
}
