//! How the waits of a refusal are told, where not as they are.

use std::time::Duration;

/// How the waits of a refusal are told: first some not at all, then long ones shorter, then all of them longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ToldWaits {
    /// Waits above it are not told.
    pub(crate) silent_above: Option<Duration>,
    /// Waits above it are told as this.
    pub(crate) max: Option<Duration>,
    /// What is added to each of them. It comes last: added before, a cap would bring all clients back at once.
    pub(crate) jitter: Duration,
}

impl ToldWaits {
    /// The wait as it is told.
    pub(super) fn wait(&self, exact: Duration) -> Option<Duration> {
        self.window(exact, exact)
    }

    /// The effective window of a policy that makes wait so long, as it is told: never beyond the told wait.
    pub(super) fn window(&self, window: Duration, wait: Duration) -> Option<Duration> {
        if self.silent_above.is_some_and(|most| wait > most) {
            return None;
        }
        let capped = self.max.map_or(window, |max| window.min(max));
        Some(capped.saturating_add(self.jitter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn by_default_a_wait_is_told_as_it_is() {
        assert_eq!(ToldWaits::default().wait(seconds(7)), Some(seconds(7)));
    }

    #[test]
    fn jitter_is_added_to_the_capped_wait() {
        let told = ToldWaits {
            max: Some(seconds(60)),
            jitter: seconds(3),
            ..ToldWaits::default()
        };
        assert_eq!(told.wait(seconds(10)), Some(seconds(13)));
        assert_eq!(told.wait(seconds(3_600)), Some(seconds(63)));
    }

    #[test]
    fn whether_a_wait_is_told_depends_on_the_exact_one() {
        let told = ToldWaits {
            silent_above: Some(seconds(60)),
            max: Some(seconds(10)),
            jitter: seconds(100),
        };
        assert_eq!(told.wait(seconds(60)), Some(seconds(110)));
        assert_eq!(told.wait(seconds(61)), None);
        assert_eq!(told.window(seconds(1), seconds(61)), None);
    }

    #[test]
    fn the_longest_waits_saturate() {
        let told = ToldWaits {
            jitter: seconds(1),
            ..ToldWaits::default()
        };
        assert_eq!(told.wait(Duration::MAX), Some(Duration::MAX));
    }
}
