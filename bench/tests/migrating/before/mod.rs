//! The code that the page starts from, word for word: see `the_page_shows_the_code_that_is_compiled_here`.

#![expect(
    unreachable_pub,
    clippy::expect_used,
    reason = "it stands for a crate of its own"
)]

pub(crate) mod axum_governor;
pub(crate) mod tower_governor;
pub(crate) mod tower_limit;
