//! Days that are asked for: an invalid one is an error, and no empty answer.

use tollgate::{DayError, Days};

#[test]
fn an_invalid_date_says_what_to_write() {
    for (first, last) in [
        ("2026-02-30", "2026-03-01"),
        ("2026-02-01", "2026-02-30"),
        ("yesterday", "2026-03-01"),
        ("2026-2-1", "2026-03-01"),
        ("'; DROP TABLE api_usage; --", "2026-03-01"),
    ] {
        let error = Days::parse(first, last).unwrap_err();
        assert_eq!(error, DayError::NoDate);
        let message = error.to_string();
        assert!(message.contains("2026-12-31"), "{message}");
        assert!(!message.contains(first), "{message}");
    }
}

#[test]
fn a_range_that_ends_before_it_begins_is_an_error() {
    let error = Days::parse("2026-12-02", "2026-12-01").unwrap_err();
    assert_eq!(error, DayError::EndsBeforeItBegins);
}
