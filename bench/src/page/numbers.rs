//! How the page writes numbers: with as many digits as tell something.

use crate::keys;

/// A rate, with commas between the thousands.
pub(super) fn rate(per_second: f64) -> String {
    keys::grouped(format_args!("{per_second:.0}"))
}

/// Microseconds, down to nanoseconds where there are few.
pub(super) fn micros(micros: f64) -> String {
    match micros {
        ..10.0 => format!("{micros:.2}"),
        ..100.0 => format!("{micros:.1}"),
        _ => rate(micros),
    }
}

pub(super) fn known_micros(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_have_decimals_and_large_ones_commas() {
        let written = [0.123_4, 12.34, 123.4, 12_345.6].map(micros);
        assert_eq!(written, ["0.12", "12.3", "123", "12,346"]);
        assert_eq!(known_micros(None), "-");
    }
}
