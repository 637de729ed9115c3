//! The tower layer. Only this folder knows tower.

mod body;
mod decisions;
mod events;
mod future;
mod layer;
mod recording;
mod rejection;
mod requests;
mod service;
mod settings;
mod settling;

pub use self::body::ResponseBody;
pub use self::decisions::Decisions;
pub use self::future::ResponseFuture;
pub use self::layer::RateLimitLayer;
pub use self::rejection::Rejection;
pub use self::service::RateLimit;
