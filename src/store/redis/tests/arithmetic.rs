//! The arithmetic of the scripts, held to that of `limit` and to wider integers, up to the ends of what they are given.

use proptest::prelude::*;

use super::*;
use crate::limit::algorithm::Span;
use crate::store::redis::packed::Packed;
use crate::store::suite::runner_of;

/// What is asked of a script at a time, so that a property is one call.
const CASES: usize = 2_000;

/// Runs a script behind what all begin with, and reads the numbers that it returns as texts.
fn eval(script: &str, asked: Packed) -> Vec<i128> {
    let server = RedisServer::shared();
    let script = format!("{}{script}", include_str!("../scripts/common.lua"));
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let texts: Vec<String> = redis::cmd("EVAL")
        .arg(script)
        .arg(0)
        .arg("arithmetic:")
        .arg("0")
        .arg("0")
        .arg(asked.into_bytes())
        .query(&mut connection)
        .unwrap();
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Small numbers, and those around the ends of what is given.
fn number(most: i64) -> impl Strategy<Value = i64> {
    prop_oneof![
        2 => 0..most.min(50),
        3 => 0..=most,
        1 => most.saturating_sub(3)..=most,
        1 => (0..63_u32).prop_map(move |bits| (1_i64 << bits).min(most)),
    ]
}

const MOST: i64 = (1 << 53) - 1;
const LIMIT: i64 = u32::MAX as i64;
const PERIOD: i64 = 10 * 366 * 86_400_000;

#[test]
fn a_product_over_a_period_is_exact() {
    // A bucket has drained for so long at a rate; a sliding counter weighs what was used by what is left of its window.
    let of_bucket = (number(MOST), number(LIMIT), number(PERIOD - 1));
    let of_counter = (number(PERIOD), number(MOST), number(PERIOD - 1));
    let case = prop_oneof![of_bucket, of_counter].prop_map(|(a, b, by)| (a, b, by + 1));
    let script = "
        local out, asked = {}, cmsgpack.unpack(ARGV[4])
        for at = 1, #asked, 3 do
            local quotient, rest = muldiv(asked[at], asked[at + 1], asked[at + 2])
            out[#out + 1], out[#out + 2] = text(quotient), text(rest)
        end
        return out";
    let cases = proptest::collection::vec(case, CASES);
    let result = runner_of(4).run(&cases, |cases| {
        let mut asked = Packed::default();
        let numbers = cases.iter().flat_map(|(a, b, by)| [*a, *b, *by]);
        asked.numbers(&numbers.collect::<Vec<_>>());
        for ((a, b, by), told) in cases.into_iter().zip(eval(script, asked).chunks(2)) {
            let (product, by) = (i128::from(a) * i128::from(b), i128::from(by));
            let (quotient, rest) = (product / by, product % by);
            if quotient > i128::from(MOST) {
                prop_assert_eq!(told[0], i128::from(MOST), "{} * {} / {}", a, b, by);
            } else {
                prop_assert_eq!(told, [quotient, rest], "{} * {} / {}", a, b, by);
            }
        }
        Ok(())
    });
    result.unwrap();
}

#[test]
fn products_are_compared_exactly() {
    let case = (
        number(MOST),
        number(PERIOD - 1),
        number(LIMIT),
        number(PERIOD - 1),
    );
    // And such that are nearly equal.
    let near = (number(LIMIT), number(PERIOD - 1), 0..3_i64).prop_map(|(units, period, more)| {
        let period = period + 1;
        (units + more - 1, period, units, period)
    });
    let case = prop_oneof![case, near].prop_map(|(a, b, c, d)| (a.max(0), b + 1, c, d + 1));
    let script = "
        local out, asked = {}, cmsgpack.unpack(ARGV[4])
        for at = 1, #asked, 4 do
            out[#out + 1] = is_no_more(asked[at], asked[at + 1], asked[at + 2], asked[at + 3]) and '1' or '0'
        end
        return out";
    let cases = proptest::collection::vec(case, CASES);
    let result = runner_of(4).run(&cases, |cases| {
        let mut asked = Packed::default();
        let numbers = cases.iter().flat_map(|(a, b, c, d)| [*a, *b, *c, *d]);
        asked.numbers(&numbers.collect::<Vec<_>>());
        for ((a, b, c, d), told) in cases.into_iter().zip(eval(script, asked)) {
            let is_no_more = i128::from(a) * i128::from(b) <= i128::from(c) * i128::from(d);
            prop_assert_eq!(told == 1, is_no_more, "{} * {} <= {} * {}", a, b, c, d);
        }
        Ok(())
    });
    result.unwrap();
}

#[test]
fn months_and_windows_begin_as_everywhere_else() {
    let last = 1_i64 << 52;
    let case = prop_oneof![-last..=last, -300_000_000_000_000..300_000_000_000_000_i64];
    let script = "
        local out, asked = {}, cmsgpack.unpack(ARGV[4])
        for at = 1, #asked, 2 do
            now = asked[at]
            local start, ends = month_of(now)
            out[#out + 1], out[#out + 2] = text(start), text(ends)
            start, ends = span_of(WINDOW, asked[at + 1])
            out[#out + 1], out[#out + 2] = text(start), text(ends)
        end
        return out";
    let cases = proptest::collection::vec((case, number(PERIOD - 1)), CASES);
    let result = runner_of(4).run(&cases, |cases| {
        let mut asked = Packed::default();
        let numbers = cases.iter().flat_map(|(at, length)| [*at, length + 1]);
        asked.numbers(&numbers.collect::<Vec<_>>());
        for ((at, length), told) in cases.into_iter().zip(eval(script, asked).chunks(4)) {
            let now = Timestamp::from_unix_millis(at);
            let window = Duration::from_millis(length.unsigned_abs() + 1);
            let spans = [Span::month(now), Span::aligned(now, window)];
            let ends = spans.iter().flat_map(|span| [span.start, span.end]);
            let expected = ends.map(|end| i128::from(end.unix_millis()));
            let clamp = |millis: i128| millis.clamp(i128::from(-last), i128::from(last));
            let told = told.iter().copied().map(clamp);
            prop_assert_eq!(
                told.collect::<Vec<_>>(),
                expected.map(clamp).collect::<Vec<_>>(),
                "at {}",
                at
            );
        }
        Ok(())
    });
    result.unwrap();
}
