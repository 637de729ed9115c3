//! What a limiter is made of: one policy or several.

use super::{Policy, PolicyError};
use crate::limit::few::Few;

/// One policy or several: what [`Limiter::new`](crate::Limiter::new) and
/// [`RateLimitLayer::new`](crate::RateLimitLayer::new) take.
///
/// It is made of a [`Policy`], an array or a `Vec` of them, or collected. Several policies are charged all or nothing: a
/// charge that one of them refuses uses nothing of the others.
///
/// # Examples
///
/// ```
/// use tollgate::{Limiter, Policy, PolicyError};
///
/// let calls = Limiter::new([
///     Policy::sliding(20, 1).name("burst"),
///     Policy::daily(10_000).name("daily"),
/// ]);
///
/// // From configuration: an error instead of a panic.
/// let configured: Vec<Policy> = vec![];
/// assert_eq!(Limiter::try_new(configured).unwrap_err(), PolicyError::NoPolicy);
/// ```
#[derive(Clone, Debug)]
pub struct Policies(Vec<Policy>);

impl Policies {
    /// The policies, of which there is at least one and no two have the same name.
    pub(crate) fn checked(self) -> Result<Few<Policy>, PolicyError> {
        for (index, policy) in self.0.iter().enumerate() {
            let name = policy.as_name();
            let mut before = self.0[..index].iter();
            if before.any(|other| other.as_name().eq_ignore_ascii_case(name)) {
                return Err(PolicyError::DuplicateName(name.to_owned()));
            }
        }
        Few::collect(self.0).ok_or(PolicyError::NoPolicy)
    }
}

impl From<Policy> for Policies {
    fn from(policy: Policy) -> Self {
        Self(vec![policy])
    }
}

impl<const N: usize> From<[Policy; N]> for Policies {
    fn from(policies: [Policy; N]) -> Self {
        Self(policies.into())
    }
}

impl From<Vec<Policy>> for Policies {
    fn from(policies: Vec<Policy>) -> Self {
        Self(policies)
    }
}

impl FromIterator<Policy> for Policies {
    fn from_iter<I: IntoIterator<Item = Policy>>(policies: I) -> Self {
        Self(policies.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_policies_of_one_name_are_refused_whatever_its_case() {
        let checked = |names: &[&str]| {
            let policies = names.iter().map(|name| Policy::fixed(1, 1).name(name));
            policies
                .collect::<Policies>()
                .checked()
                .map(|few| few.len())
        };
        assert_eq!(checked(&["a", "b"]), Ok(2));
        assert_eq!(
            checked(&["a", "b", "A"]),
            Err(PolicyError::DuplicateName("A".to_owned()))
        );
        assert_eq!(checked(&[]), Err(PolicyError::NoPolicy));
        let unnamed = Policies::from([Policy::fixed(1, 1), Policy::fixed(1, 1)]);
        assert!(unnamed.checked().is_err());
    }
}
