//! Durations and instants as answers show them, and as requests have them.

use std::time::Duration;

use serde::{Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::limit::{Day, Timestamp};

/// A duration in seconds, rounded up to the millisecond: whole ones as whole numbers.
#[derive(Debug)]
pub(super) struct Seconds(pub(super) Duration);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let millis = self.0.as_nanos().div_ceil(1_000_000);
        if millis.is_multiple_of(1_000) {
            return serializer.serialize_u64(u64::try_from(millis / 1_000).unwrap_or(u64::MAX));
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "of 285,000 years the milliseconds are exact"
        )]
        // The number that is nearest to these three places, and so is written with them.
        let seconds = millis as f64 / 1_000.0;
        serializer.serialize_f64(seconds)
    }
}

/// An instant as RFC 3339 has it, in UTC: `2026-12-01T00:42:17.250Z`.
pub(super) fn instant(at: Timestamp) -> String {
    let millis = at.unix_millis().rem_euclid(86_400_000);
    let (seconds, millis) = (millis / 1_000, millis % 1_000);
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!(
        "{}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z",
        Day::of(at)
    )
}

/// An instant as RFC 3339 has it, with any offset; what is less than a millisecond is dropped.
pub(super) fn read_instant(text: &str) -> Option<Timestamp> {
    let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    let millis = at.unix_timestamp_nanos().div_euclid(1_000_000);
    i64::try_from(millis).ok().map(Timestamp::from_unix_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_as_many_places_as_they_need() {
        let shown = |nanos| {
            let seconds = Seconds(Duration::from_nanos(nanos));
            serde_json::to_string(&seconds).unwrap()
        };
        assert_eq!(shown(0), "0");
        assert_eq!(shown(900_000_000_000), "900");
        assert_eq!(shown(1), "0.001");
        assert_eq!(shown(12_345_000_000), "12.345");
        assert_eq!(shown(12_345_000_001), "12.346");
        // No trace of binary fractions.
        assert_eq!(shown(3_647_000_000), "3.647");
        assert_eq!(shown(15_694_000_000), "15.694");
    }

    #[test]
    fn instants_are_those_of_the_utc_calendar() {
        let shown = |millis| instant(Timestamp::from_unix_millis(millis));
        assert_eq!(shown(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(shown(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(
            shown(1_799_985_600_000 + 45_296_789),
            "2027-01-15T16:34:56.789Z"
        );
    }

    #[test]
    fn instants_are_read_with_any_offset_and_as_they_are_shown() {
        for text in ["2027-01-15T16:34:56.789Z", "2027-01-15t17:34:56.7899+01:00"] {
            let at = read_instant(text).unwrap();
            assert_eq!(instant(at), "2027-01-15T16:34:56.789Z");
        }
        for text in [
            "",
            "tomorrow",
            "2027-01-15",
            "2027-02-29T00:00:00Z",
            "2027-01-15T16:34:56",
        ] {
            assert_eq!(read_instant(text), None, "{text}");
        }
    }
}
