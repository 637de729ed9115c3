//! The address of the client, as trusted proxies tell it.

#[expect(
    clippy::module_inception,
    reason = "a file is named after its one public function"
)]
mod client_ip;
mod elements;
mod forwarded;
mod forwarded_header;
mod node;
mod single;
mod trusted_proxies;
mod x_forwarded_for;

pub use self::client_ip::{client_ip, client_ip_by_prefix};
pub use self::forwarded_header::ForwardedHeader;
pub use self::trusted_proxies::TrustedProxies;
