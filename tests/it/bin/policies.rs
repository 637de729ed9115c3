//! Policies as the arguments of these programs write them: the word of the constructor and its numbers, of a token bucket the
//! burst too. `unleased` is a fixed window without leases.

use tollgate::Policy;

/// The policy of a text like `sliding:1000:60`, named after the constructor.
pub(crate) fn policy(text: &str) -> Result<Policy, String> {
    let (word, numbers) = text.split_once(':').unwrap_or((text, ""));
    let numbers: Result<Vec<u32>, _> = numbers.split(':').map(str::parse).collect();
    let numbers = numbers.map_err(|error| format!("{text}: {error}"))?;
    let policy = match (word, &numbers[..]) {
        ("fixed", &[limit, seconds]) => Policy::fixed(limit, seconds.into()),
        ("unleased", &[limit, seconds]) => Policy::fixed(limit, seconds.into()).leases(false),
        ("sliding", &[limit, seconds]) => Policy::sliding(limit, seconds.into()),
        ("sliding-counter", &[limit, seconds]) => Policy::sliding_counter(limit, seconds.into()),
        ("token-bucket", &[rate, seconds, burst]) => {
            Policy::token_bucket(rate, seconds.into()).burst(burst)
        }
        ("hourly", &[limit]) => Policy::hourly(limit),
        ("daily", &[limit]) => Policy::daily(limit),
        ("monthly", &[limit]) => Policy::monthly(limit),
        _ => return Err(format!("{text} is no policy")),
    };
    Ok(policy.name(word))
}
