//! The dialects of the `RateLimit` field.

/// Whose letters the field `RateLimit` uses. `RateLimit-Policy` is the same in all of them.
///
/// The two must not be mixed for one client: what a parser of one finds missing in the other makes the field worthless.
///
/// # Examples
///
/// ```
/// use tollgate::{Dialect, RateLimitLayer};
///
/// // RateLimit: "login";a=4;w=899
/// let layer = RateLimitLayer::sliding(5, 900).name("login").dialect(Dialect::Editors2026);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// draft-ietf-httpapi-ratelimit-headers-08 to -11: `r` is what is left, `t` the seconds of the effective window.
    #[default]
    Draft08,
    /// The editors' copy of 2026 (pull request 166): `a` is what is available, `w` the seconds of the effective window.
    Editors2026,
}

impl Dialect {
    /// The parameters for what is left, and for the effective window.
    pub(super) fn parameters(self) -> (&'static str, &'static str) {
        match self {
            Self::Draft08 => (";r=", ";t="),
            Self::Editors2026 => (";a=", ";w="),
        }
    }
}
