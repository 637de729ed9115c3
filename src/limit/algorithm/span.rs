//! Windows that start at instants of their own: aligned to their length, or those of the UTC calendar.

use std::time::Duration;

use time::OffsetDateTime;

use crate::limit::Timestamp;
use crate::limit::timestamp::millis;

/// No charge is stored later than this after its instant.
pub(crate) const LONGEST_WAY: Duration = Duration::from_secs(10);

/// The window that holds an instant: from `start` until just before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
}

impl Span {
    /// The window of this length that holds `at`: it starts at `at - at % window`.
    pub(crate) fn aligned(at: Timestamp, window: Duration) -> Self {
        let length = millis(window).max(1);
        let at = at.unix_millis();
        let start = Timestamp::from_unix_millis(at.saturating_sub(at.rem_euclid(length)));
        Self {
            start,
            end: start.saturating_add(window),
        }
    }

    /// The month of the UTC calendar that holds `at`. What is outside of the calendar's years, -9999 to 9999, is one
    /// long window on each side.
    pub(crate) fn month(at: Timestamp) -> Self {
        let first = calendar_start(-9_999, 1);
        let last = calendar_start(9_999, 12);
        if at < first {
            let start = Timestamp::from_unix_millis(i64::MIN);
            return Self { start, end: first };
        }
        if at >= last {
            let end = Timestamp::from_unix_millis(i64::MAX);
            return Self { start: last, end };
        }
        let seconds = at.unix_millis().div_euclid(1_000);
        let date = OffsetDateTime::from_unix_timestamp(seconds)
            .unwrap_or(OffsetDateTime::UNIX_EPOCH)
            .date();
        let (year, month) = (date.year(), u8::from(date.month()));
        let (next_year, next_month) = match month {
            12 => (year + 1, 1),
            month => (year, month + 1),
        };
        Self {
            start: calendar_start(year, month),
            end: calendar_start(next_year, next_month),
        }
    }

    /// From when on nobody needs the row: it is kept for `needed_for` after its window, and as long as a charge of that
    /// window may still be on its way. Without its row such a charge would begin a new count.
    pub(crate) fn expires_at(self, needed_for: Duration) -> Timestamp {
        self.end.saturating_add(needed_for.max(LONGEST_WAY))
    }
}

/// Midnight of a month's first day.
fn calendar_start(year: i32, month: u8) -> Timestamp {
    let month = time::Month::try_from(month).unwrap_or(time::Month::January);
    let midnight = time::Date::from_calendar_date(year, month, 1).map(time::Date::midnight);
    let seconds = midnight.map_or(0, |midnight| midnight.assume_utc().unix_timestamp());
    Timestamp::from_unix_millis(seconds.saturating_mul(1_000))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_unix_millis(millis)
    }

    #[test]
    fn a_window_starts_at_the_instant_floored_to_its_length() {
        let minute = Duration::from_secs(60);
        let span = Span::aligned(at(61_000), minute);
        assert_eq!((span.start, span.end), (at(60_000), at(120_000)));
        assert_eq!(Span::aligned(at(119_999), minute), span);
        assert_eq!(Span::aligned(at(120_000), minute).start, at(120_000));
        assert_eq!(Span::aligned(at(-1), minute).start, at(-60_000));
        assert_eq!(span.expires_at(minute), at(180_000));
        let milli = Duration::from_millis(1);
        assert_eq!(
            Span::aligned(at(5), milli).expires_at(milli),
            at(10_006),
            "a charge may be on its way"
        );
    }

    #[test]
    fn windows_at_the_ends_of_time_saturate() {
        let window = Duration::from_secs(60);
        assert_eq!(Span::aligned(at(i64::MAX), window).end, at(i64::MAX));
        assert_eq!(Span::aligned(at(i64::MIN), window).start, at(i64::MIN));
        let _ = Span::aligned(at(i64::MIN), window).expires_at(Duration::MAX);
        assert_eq!(Span::month(at(i64::MIN)).start, at(i64::MIN));
        assert_eq!(Span::month(at(i64::MAX)).end, at(i64::MAX));
    }

    #[test]
    fn a_month_is_that_of_the_utc_calendar() {
        // 2028-02-29T23:59:59.999Z and 2028-03-01T00:00:00Z.
        let leap_day = Span::month(at(1_835_481_599_999));
        assert_eq!(leap_day.start, at(1_832_976_000_000));
        assert_eq!(leap_day.end, at(1_835_481_600_000));
        assert_eq!(Span::month(leap_day.end).start, leap_day.end);
        // December 1999 ends with the century.
        let december = Span::month(at(946_684_799_999));
        assert_eq!(december.end, at(946_684_800_000));
        assert_eq!(Span::month(at(-1)).end, at(0));
    }

    proptest! {
        #[test]
        fn months_follow_each_other_without_a_gap(millis in any::<i64>()) {
            let span = Span::month(at(millis));
            prop_assert!(span.start <= at(millis));
            prop_assert!(at(millis) < span.end || span.end == at(i64::MAX));
            if span.end < at(i64::MAX) {
                prop_assert_eq!(Span::month(span.end).start, span.end);
            }
            if span.start > at(i64::MIN) {
                let before = at(span.start.unix_millis() - 1);
                prop_assert_eq!(Span::month(before).end, span.start);
            }
        }
    }
}
