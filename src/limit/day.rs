//! Days of the UTC calendar, and ranges of them.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use time::{Date, Month};

use super::Timestamp;

const MILLIS_PER_DAY: i64 = 86_400_000;
/// Ten years and a bit: nothing is kept for longer, and a range takes time for each of its days.
const MOST_DAYS: i32 = 3_660;

/// A day of the UTC calendar, written `2026-12-31`.
///
/// # Examples
///
/// ```
/// use tollgate::{Day, Timestamp};
///
/// let day: Day = "2028-02-29".parse()?;
/// assert_eq!(day.to_string(), "2028-02-29");
/// assert_eq!(Day::of(Timestamp::from_unix_millis(86_399_999)).to_string(), "1970-01-01");
///
/// // What is not in the calendar is no day.
/// assert!("2027-02-29".parse::<Day>().is_err());
/// # Ok::<(), tollgate::DayError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(Date);

impl Day {
    /// The day that holds an instant. What lies outside of the years -9999 to 9999 counts as the nearer end.
    #[must_use]
    pub fn of(at: Timestamp) -> Self {
        Self::from_unix_days(at.unix_millis().div_euclid(MILLIS_PER_DAY))
    }

    /// The day that lies so many days after 1970-01-01.
    pub(crate) fn from_unix_days(days: i64) -> Self {
        let epoch = i64::from(epoch());
        let first = i64::from(Date::MIN.to_julian_day());
        let last = i64::from(Date::MAX.to_julian_day());
        let julian = days.saturating_add(epoch).clamp(first, last);
        let date = i32::try_from(julian).map(Date::from_julian_day);
        Self(date.ok().and_then(Result::ok).unwrap_or(Date::MIN))
    }

    /// How many days it lies after 1970-01-01.
    pub(crate) fn unix_days(self) -> i64 {
        i64::from(self.0.to_julian_day() - epoch())
    }
}

/// 1970-01-01 as a Julian day.
fn epoch() -> i32 {
    time::OffsetDateTime::UNIX_EPOCH.to_julian_day()
}

impl FromStr for Day {
    type Err = DayError;

    fn from_str(text: &str) -> Result<Self, DayError> {
        let bytes = text.as_bytes();
        let is_written_so = bytes.len() == 10
            && bytes.iter().enumerate().all(|(place, byte)| match place {
                4 | 7 => *byte == b'-',
                _ => byte.is_ascii_digit(),
            });
        if !is_written_so {
            return Err(DayError::NoDate);
        }
        let mut numbers = text.split('-');
        let mut next = || numbers.next().and_then(|number| number.parse::<u16>().ok());
        let (Some(year), Some(month), Some(day)) = (next(), next(), next()) else {
            return Err(DayError::NoDate);
        };
        let month = u8::try_from(month).ok().map(Month::try_from);
        let month = month.and_then(Result::ok).ok_or(DayError::NoDate)?;
        let day = u8::try_from(day).map_err(|_| DayError::NoDate)?;
        let date = Date::from_calendar_date(year.into(), month, day);
        date.map(Self).map_err(|_| DayError::NoDate)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.0.to_calendar_date();
        write!(f, "{year:04}-{:02}-{day:02}", u8::from(month))
    }
}

impl fmt::Debug for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Day({self})")
    }
}

/// Days that follow each other, the first and the last included: 3,660 at most.
///
/// # Examples
///
/// ```
/// use tollgate::{DayError, Days};
///
/// let december = Days::parse("2026-12-01", "2026-12-31")?;
/// assert_eq!(december.len(), 31);
///
/// assert_eq!(Days::parse("2026-12-32", "2027-01-01"), Err(DayError::NoDate));
/// assert_eq!(Days::parse("2026-12-31", "2026-12-01"), Err(DayError::EndsBeforeItBegins));
/// # Ok::<(), DayError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Days {
    first: Day,
    last: Day,
}

impl Days {
    /// The days from `first` to `last`, both included.
    ///
    /// # Errors
    ///
    /// [`DayError`] when the last one is before the first, or there are more than 3,660.
    pub fn new(first: Day, last: Day) -> Result<Self, DayError> {
        if last < first {
            return Err(DayError::EndsBeforeItBegins);
        }
        let days = Self { first, last };
        if days.len() > MOST_DAYS.unsigned_abs() {
            return Err(DayError::TooManyDays);
        }
        Ok(days)
    }

    /// The days from one to another, both included and written `2026-12-31`.
    ///
    /// # Errors
    ///
    /// [`DayError`] when one of them is not in the calendar, and as [`new`](Self::new).
    pub fn parse(first: &str, last: &str) -> Result<Self, DayError> {
        Self::new(first.parse()?, last.parse()?)
    }

    /// The first day.
    #[must_use]
    pub fn first(&self) -> Day {
        self.first
    }

    /// The last day.
    #[must_use]
    pub fn last(&self) -> Day {
        self.last
    }

    /// How many days there are: 1 at least.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> u32 {
        let days = self.last.unix_days() - self.first.unix_days() + 1;
        u32::try_from(days).unwrap_or(u32::MAX)
    }
}

impl From<Day> for Days {
    fn from(day: Day) -> Self {
        Self {
            first: day,
            last: day,
        }
    }
}

/// Why a text is no [`Day`], or two days are no [`Days`].
///
/// No message holds the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DayError {
    /// The text is no day of the calendar, or is written in another way.
    NoDate,
    /// The last day is before the first.
    EndsBeforeItBegins,
    /// There are more than 3,660 days.
    TooManyDays,
}

impl fmt::Display for DayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoDate => "there is no such day: write one of the calendar, like 2026-12-31",
            Self::EndsBeforeItBegins => {
                "the last day is before the first: give the earlier one first"
            }
            Self::TooManyDays => "there are more than 3660 days: ask for fewer at a time",
        })
    }
}

impl Error for DayError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_in_the_calendar_or_written_otherwise_is_no_day() {
        for text in [
            "",
            "2026-12-00",
            "2026-12-32",
            "2026-00-01",
            "2026-13-01",
            "2026-04-31",
            "2027-02-29",
            "1900-02-29",
            "2026-1-01",
            "2026-12-1",
            "20261201",
            "2026/12/01",
            "2026-12-01 ",
            " 2026-12-01",
            "+026-12-01",
            "-026-12-01",
            "2026-12-01T00:00:00Z",
            "12026-12-01",
            "２０２６-12-01",
            "today",
        ] {
            assert_eq!(text.parse::<Day>(), Err(DayError::NoDate), "{text}");
        }
    }

    #[test]
    fn days_of_leap_years_are_days() {
        for text in ["2000-02-29", "2028-02-29", "0000-02-29", "9999-12-31"] {
            assert_eq!(text.parse::<Day>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_range_has_an_end_after_its_beginning_and_is_bounded() {
        let day = |text: &str| text.parse::<Day>().unwrap();
        assert_eq!(Days::from(day("2026-12-01")).len(), 1);
        let ten_years = Days::new(day("2026-01-01"), day("2035-12-31")).unwrap();
        assert_eq!(ten_years.len(), 3_652);
        let longer = Days::new(day("2026-01-01"), day("2036-01-09"));
        assert_eq!(longer, Err(DayError::TooManyDays));
    }

    #[test]
    fn instants_outside_of_the_calendar_are_on_its_first_and_last_day() {
        let first = Day::of(Timestamp::from_unix_millis(i64::MIN));
        let last = Day::of(Timestamp::from_unix_millis(i64::MAX));
        assert_eq!(first.to_string(), "-9999-01-01");
        assert_eq!(last.to_string(), "9999-12-31");
    }

    proptest! {
        #[test]
        fn a_day_is_read_as_it_is_written(days in -719_528_i64..=2_932_896) {
            let day = Day::from_unix_days(days);
            prop_assert_eq!(day.to_string().parse(), Ok(day));
            prop_assert_eq!(day.unix_days(), days);
            let at = Timestamp::from_unix_millis(days * MILLIS_PER_DAY);
            prop_assert_eq!(Day::of(at), day);
        }
    }
}
