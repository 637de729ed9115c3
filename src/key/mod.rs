//! Where a request's [`Key`](crate::Key) comes from.
//!
//! A layer asks one [`KeySource`]: the peer's address by default, the client's behind proxies, a header, what an
//! authentication layer put into the extensions, the route, the method, a constant, or a function. Sources are chained
//! with [`KeySource::or`], and joined to keys of several parts with [`KeySource::and`].
//!
//! | source | finds nothing when | answer then, unless another source follows |
//! | --- | --- | --- |
//! | [`peer_ip`] | the server does not make the peer's address known | 500: the set-up is incomplete |
//! | [`client_ip`] | the same | the same |
//! | [`header`] | the header is missing, empty or blank | 400: the client must send it |
//! | [`extension`] | nothing put the value there, or the closure gave nothing | 500: the set-up is incomplete |
//! | `matched_route` (feature `axum`) | the layer stands around the router | 500: the set-up is wrong |
//! | [`method`] | never | |
//! | [`constant`] | never | |
//! | [`from_fn`] | the function gave nothing | 400 |
//!
//! Only what a client can't choose limits it: a header that nobody verified buys a fresh counter for each made-up value.
//!
//! # Examples
//!
//! ```
//! use tollgate::{Key, RateLimitLayer, key};
//!
//! # #[derive(Clone)] struct UserId(u64);
//! // The user when there is one, otherwise the address.
//! let layer = RateLimitLayer::fixed(100, 60)
//!     .key(key::extension(|user: &UserId| Key::new("user", user.0)).or(key::peer_ip()));
//! ```

mod both;
mod client_ip;
mod constant;
mod extension;
mod extractor;
mod from_fn;
mod grouping;
mod hashed;
mod header;
mod into_key;
#[cfg(feature = "axum")]
mod matched_route;
mod method;
mod network_error;
mod networks;
mod normalized;
mod peer_ip;
mod source;

pub use self::client_ip::{ForwardedHeader, TrustedProxies, client_ip, client_ip_by_prefix};
pub use self::constant::constant;
pub use self::extension::{ExtensionKey, extension};
pub use self::extractor::{KeyError, KeyExtractor};
pub use self::from_fn::from_fn;
pub use self::header::header;
pub use self::into_key::IntoKey;
#[cfg(feature = "axum")]
pub use self::matched_route::matched_route;
pub use self::method::method;
pub use self::network_error::NetworkError;
pub(crate) use self::networks::Networks;
use self::normalized::Normalize;
pub use self::peer_ip::{PeerAddr, peer_ip, peer_ip_by_prefix};
pub use self::source::KeySource;
