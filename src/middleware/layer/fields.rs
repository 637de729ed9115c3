//! Which fields a layer writes, and how.

use http::HeaderName;

use super::RateLimitLayer;
use crate::limit::Mistake;
use crate::response::{Dialect, PartitionKey, ResetFormat};

impl RateLimitLayer {
    /// Sends `X-RateLimit-Limit`, `-Remaining` and `-Reset` too, for clients that know nothing newer. Off by default.
    ///
    /// Where layers nest, they are those of the limit that has the fewest left.
    #[must_use]
    pub fn x_rate_limit(self, reset: ResetFormat) -> Self {
        self.with(|settings| settings.fields.x_rate_limit = Some(reset))
    }

    /// Sets the letters of the field `RateLimit`: by default [`Dialect::Draft08`]. Nested layers should have the same.
    #[must_use]
    pub fn dialect(self, dialect: Dialect) -> Self {
        self.with(|settings| settings.fields.dialect = dialect)
    }

    /// Adds a partition key to each member of `RateLimit`: `pk=:base64:`, which tells a client whose quota it is about
    /// without saying who that is. Off by default.
    ///
    /// It is the first 12 bytes of the HMAC-SHA256 of the [key](crate::Key) as it is stored, under this secret. So one
    /// key has the same partition key under every policy and in every process with the secret, another one after the
    /// secret has changed, and nobody without the secret can try keys against it. It does let whoever sees the answers
    /// recognise a client again.
    ///
    /// # Panics
    ///
    /// When the secret is empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimitLayer;
    ///
    /// # fn random_secret() -> Vec<u8> { vec![7; 32] }
    /// let secret: Vec<u8> = random_secret();
    /// let layer = RateLimitLayer::fixed(100, 60).partition_key(&secret);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn partition_key(self, secret: impl AsRef<[u8]>) -> Self {
        let Some(partition_key) = PartitionKey::new(secret.as_ref()) else {
            panic!(
                "the secret of a partition key is empty: give random bytes, best 32, the same in each process {}",
                Mistake("empty-secret")
            );
        };
        self.with(|settings| settings.fields.partition_key = Some(partition_key))
    }

    /// Sets whether responses with a status of 3xx have the rate limit fields: by default `true`. A client that reads
    /// there that nothing is left may not follow a redirect.
    #[must_use]
    pub fn fields_on_redirects(self, has_fields: bool) -> Self {
        self.with(|settings| settings.has_fields_on_redirects = has_fields)
    }

    /// The names of the fields that this layer may write: `RateLimit`, `RateLimit-Policy`, `Retry-After`, and
    /// `X-RateLimit-*` when [on](Self::x_rate_limit). None when the layer is not [enabled](Self::enabled).
    ///
    /// They are for `Access-Control-Expose-Headers`: a script in a browser sees none of them otherwise. Headers of a gRPC
    /// status and of answers of your own are not among them.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimitLayer;
    /// use tower_http::cors::{Any, CorsLayer};
    ///
    /// let limit = RateLimitLayer::fixed(100, 60);
    /// let cors = CorsLayer::new().allow_origin(Any).expose_headers(limit.exposed_headers());
    ///
    /// // CORS goes outside, so that a refusal has its headers too.
    /// let app = axum::Router::<()>::new().layer(limit).layer(cors);
    /// ```
    #[must_use]
    pub fn exposed_headers(&self) -> Vec<HeaderName> {
        if self.settings.is_enabled && !self.settings.limiter.is_shadow() {
            self.settings.fields.names()
        } else {
            Vec::new()
        }
    }
}
