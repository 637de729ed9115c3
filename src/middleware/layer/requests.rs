//! What depends on the request: whether it counts, and how many units it uses.

use std::sync::Arc;

use http::request::Parts;

use super::RateLimitLayer;
use crate::key::{NetworkError, Networks};
use crate::middleware::requests::{Requests, is_preflight};

impl RateLimitLayer {
    /// Sets how many units a request uses: 1 by default, from 0 to `u32::MAX`. It is asked once for each request.
    ///
    /// A cost of 0 is a look: the request is allowed whatever was used, uses nothing, and its response has the fields. A
    /// request that costs more than is left is refused and uses nothing, so that a cheaper one may still pass; one that
    /// costs more than the limit is refused without `Retry-After`, since no wait helps.
    ///
    /// When a layer further inside charges the policy and key that one outside has looked at, the fields are those of the charge.
    ///
    /// It is charged to every policy of the layer, also of those that were added with [`and`](Self::and): where one counts requests
    /// and another units, they are two layers.
    ///
    /// A counter that a layer outside has charged for the request is not charged again, whatever the costs, so set the
    /// cost on the outermost of the layers that share a counter. A layer that would have charged more warns once.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::sliding(1_000, 3_600).cost(|parts| match parts.uri.path() {
    ///     "/export" => 50,
    ///     "/status" => 0,
    ///     _ => 1,
    /// });
    /// ```
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Parts) -> u32 + Send + Sync + 'static) -> Self {
        self.with_requests(|requests| requests.cost = Some(Arc::new(cost)))
    }

    /// Passes a request on uncounted and without fields when this says so. It may be set several times: any of them can
    /// say so.
    ///
    /// A request that is skipped needs no key, and has no [`Decisions`](crate::Decisions) of this layer.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::fixed(100, 60).skip(|parts| parts.uri.path() == "/health");
    /// ```
    #[must_use]
    pub fn skip(self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with_requests(|requests| requests.skips.push(Arc::new(skip)))
    }

    /// Passes CORS preflights on uncounted and without fields: OPTIONS with `Origin` and `Access-Control-Request-Method`.
    /// Off by default. Any other OPTIONS counts.
    ///
    /// A browser sends them by itself, so they are no use of the API. Anybody else can send them too: what answers them
    /// should be cheap. A CORS layer outside answers them before they come here.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::fixed(100, 60).skip_preflights();
    /// ```
    #[must_use]
    pub fn skip_preflights(self) -> Self {
        self.skip(is_preflight)
    }

    /// Passes requests from these networks on uncounted and without fields: `10.0.0.0/8`, `2001:db8::/32`, or a single
    /// address. Several calls add up.
    ///
    /// What counts is the address that the layer's [`key`](Self::key) is made of, so that a network is exempt only where
    /// that address can be believed. IPv4 that is mapped into IPv6 is IPv4, in addresses and in networks. A request whose
    /// key is no address (of a source before, or after, in a chain) is not exempt.
    ///
    /// # Panics
    ///
    /// When a text is no network, its address has bits beyond the prefix, or it is all of IPv4 or IPv6 (for that there is
    /// [`enabled`](Self::enabled)); and when no source of the layer's key has an address, here or in `key`, whichever
    /// comes last. [`try_exempt_networks`](Self::try_exempt_networks) returns an error instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::fixed(100, 60).exempt_networks(["10.0.0.0/8", "fd00::/8"]);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn exempt_networks(self, networks: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        match self.try_exempt_networks(networks) {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"),
        }
    }

    /// Passes requests from these networks on uncounted; see [`exempt_networks`](Self::exempt_networks).
    ///
    /// # Errors
    ///
    /// [`NetworkError`] when a text is no network, has bits beyond the prefix or is everything, and when no source of the
    /// layer's key has an address.
    pub fn try_exempt_networks(
        mut self,
        networks: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, NetworkError> {
        let networks = Networks::parse(networks)?;
        let settings = Arc::make_mut(&mut self.settings);
        settings.requests_mut().networks.extend(networks);
        settings.check_addresses()?;
        Ok(self)
    }

    pub(super) fn with_requests(self, change: impl FnOnce(&mut Requests)) -> Self {
        self.with(|settings| change(settings.requests_mut()))
    }
}
