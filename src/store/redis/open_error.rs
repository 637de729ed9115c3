//! Why a Redis can't be used.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::limit::Mistake;
use crate::store::StoreError;

/// Why a Redis can't be used.
///
/// [`fmt::Debug`] says the same as [`fmt::Display`], and the cause: it is what `main` and `unwrap` print. The message ends
/// with the mistake's [name](Self::name) in brackets. It shows no password.
#[derive(Clone)]
#[non_exhaustive]
pub enum RedisOpenError {
    /// The URL is no Redis URL.
    InvalidUrl(String),
    /// The URL asks for TLS, and the application's `redis` is built without it.
    NoTls,
    /// The server's certificate is not trusted, or is not one for this host.
    Tls(Arc<dyn Error + Send + Sync>),
    /// The prefix is longer than 64 bytes, or has a brace or a control character.
    InvalidPrefix,
    /// Nobody answers at the address.
    Unreachable(Arc<dyn Error + Send + Sync>),
    /// The server refuses the user or the password, or does not allow the user to run scripts.
    NotAllowed(Arc<dyn Error + Send + Sync>),
    /// Something else.
    Failed(Arc<dyn Error + Send + Sync>),
}

impl RedisOpenError {
    /// The stable name of the mistake, under which the page `docs/errors.md` tells the cure.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let error = RedisStore::connect("postgres://localhost").await.unwrap_err();
    /// assert_eq!(error.name(), "invalid-redis-url");
    /// assert!(error.to_string().ends_with("[invalid-redis-url]"));
    /// # });
    /// ```
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.mistake().0
    }

    fn mistake(&self) -> Mistake {
        match self {
            Self::InvalidUrl(_) => Mistake("invalid-redis-url"),
            Self::NoTls => Mistake("redis-without-tls"),
            Self::Tls(_) => Mistake("redis-tls-failed"),
            Self::InvalidPrefix => Mistake("invalid-prefix"),
            Self::Unreachable(_) => Mistake("redis-unreachable"),
            Self::NotAllowed(_) => Mistake("redis-not-allowed"),
            Self::Failed(_) => Mistake("redis-not-opened"),
        }
    }

    pub(super) fn from_store(error: StoreError) -> Self {
        let StoreError::Database { source, .. } = &error else {
            return match error {
                StoreError::DeadlineExceeded => Self::Unreachable(Arc::new(error)),
                error => Self::Failed(Arc::new(error)),
            };
        };
        let source = Arc::clone(source);
        let Some(redis) = source.downcast_ref::<redis::RedisError>() else {
            return Self::Failed(source);
        };
        let is_not_allowed = redis.kind() == redis::ErrorKind::AuthenticationFailed
            || matches!(
                redis.code(),
                Some("NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED")
            );
        if is_not_allowed {
            Self::NotAllowed(source)
        } else if is_untrusted(redis) {
            Self::Tls(source)
        } else if redis.is_io_error() {
            Self::Unreachable(source)
        } else {
            Self::Failed(source)
        }
    }
}

impl fmt::Display for RedisOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidUrl(why) => write!(
                f,
                "the URL is none of a Redis: {why}; give one like redis://user:password@host:6379/0"
            )?,
            Self::NoTls => f.write_str(
                "the URL asks for TLS, and the crate redis is built without: add one of its TLS features to the application, like redis = { features = [\"tokio-rustls-comp\"] }, or write redis://",
            )?,
            Self::Tls(_) => f.write_str(
                "there is no TLS with this Redis: have this machine trust the CA of its certificate, and the URL name a host of it",
            )?,
            Self::InvalidPrefix => f.write_str(
                "the prefix of the keys is too long, or has a brace or a control character: give up to 64 bytes without, like \"app:\"",
            )?,
            Self::Unreachable(_) => f.write_str(
                "nobody answers at the address of the Redis: start it, or look at the address, the port and the network",
            )?,
            Self::NotAllowed(_) => f.write_str(
                "the Redis refuses the user: look at the name and the password, and allow it @read, @write, @scripting and TIME",
            )?,
            Self::Failed(_) => f.write_str("the Redis can't be used")?,
        }
        write!(f, " {}", self.mistake())
    }
}

impl fmt::Debug for RedisOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        match self.source() {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for RedisOpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::InvalidUrl(_) | Self::NoTls | Self::InvalidPrefix => None,
            Self::Tls(source)
            | Self::Unreachable(source)
            | Self::NotAllowed(source)
            | Self::Failed(source) => Some(source),
        }
    }
}

/// So rustls says that it does not trust a certificate.
fn is_untrusted(error: &redis::RedisError) -> bool {
    let shared = error.source();
    let shared = shared.and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    let io = shared.and_then(|shared| shared.downcast_ref::<io::Error>());
    io.is_some_and(|io| io.kind() == io::ErrorKind::InvalidData)
}
