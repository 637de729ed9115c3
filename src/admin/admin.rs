//! The admin API, which is built like a layer.

use std::convert::Infallible;
use std::fmt;

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use axum::routing::Route;
use tower_layer::Layer;
use tower_service::Service;

use super::site::{Listed, Site};
use super::{AdminError, AdminKey, gate, routes};
use crate::limiter::Limiter;
use crate::middleware::RateLimitLayer;
#[cfg(feature = "sqlite")]
use crate::store::SqliteStore;

/// An HTTP API for whoever runs the service: who is refused, why, and how to let them through without a deploy.
///
/// It tells policies and their settings, the state of a key, the busiest and the most refused keys, usage, and the health of the stores,
/// and resets a key, everything under one, or a whole policy. It speaks JSON, its errors are problem documents (RFC 9457), and no answer
/// may be cached. `GET /openapi.json` describes all of it.
///
/// There is none without an authentication: a key ([`new`](Self::new)), or a layer of the application's ([`behind`](Self::behind)).
/// Keep it off the public side all the same: on a listener of its own, or on a path that the proxy does not pass on. It sends no CORS
/// fields, so pages of other origins can't read it.
///
/// # Counting by key
///
/// From when a layer or a limiter is given to it, this process counts which of its keys use most and are refused most: at most 1,000
/// at a time for each policy and list, some 0.8 MB for a policy whose lists are full, of the last 15 to 30 minutes. It costs a charge
/// one short lock.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::{Admin, AdminKey, RateLimitLayer, SqliteStore};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("limits.db");
/// # let secret = "6c1f0a7be2d94f5bb2c17ef0d3a1e8a4";
/// let store = SqliteStore::open(path).await?;
/// let login = RateLimitLayer::sliding(5, 900).name("login").store(&store);
///
/// let admin: Router = Admin::new(AdminKey::new(secret)?)
///     .layer(&login)
///     .store(&store)
///     .into_router()?;
///
/// let app: Router = Router::new()
///     .route("/login", get(|| async { "welcome" }).layer(login))
///     .nest("/admin/limits", admin);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
pub struct Admin {
    guard: Guard,
    site: Site,
    error: Option<AdminError>,
}

/// Puts the routes behind an authentication.
type Guard = Box<dyn FnOnce(Router) -> Router + Send + Sync>;

impl Admin {
    /// An API for who sends this key, in `X-Admin-Key` or as the bearer token in `Authorization`. Others get a 401.
    #[must_use]
    pub fn new(key: AdminKey) -> Self {
        Self::guarded(Box::new(|router| gate::behind_key(router, key)))
    }

    /// An API behind a layer of the application's, which must answer in its place whom it does not let through: the API itself asks
    /// nobody any more who he is. It takes every layer that [`Router::route_layer`] takes.
    ///
    /// Where the layer goes by a cookie, a page of another origin can have a browser send it along. It changes nothing by that: all that
    /// changes something is DELETE or PUT, for which a browser asks first, and is told no.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::extract::Request;
    /// use axum::http::StatusCode;
    /// use axum::middleware::{Next, from_fn};
    /// use axum::response::Response;
    /// use tollgate::{Admin, RateLimitLayer};
    ///
    /// # #[derive(Clone)] struct Staff;
    /// async fn staff_only(request: Request, next: Next) -> Result<Response, StatusCode> {
    ///     match request.extensions().get::<Staff>() {
    ///         Some(_) => Ok(next.run(request).await),
    ///         None => Err(StatusCode::FORBIDDEN),
    ///     }
    /// }
    ///
    /// let api = RateLimitLayer::fixed(100, 60).name("api");
    /// let admin = Admin::behind(from_fn(staff_only)).layer(&api).into_router()?;
    /// # Ok::<(), tollgate::AdminError>(())
    /// ```
    #[must_use]
    pub fn behind<L>(authentication: L) -> Self
    where
        L: Layer<Route> + Clone + Send + Sync + 'static,
        L::Service: Service<Request> + Clone + Send + Sync + 'static,
        <L::Service as Service<Request>>::Response: IntoResponse + 'static,
        <L::Service as Service<Request>>::Error: Into<Infallible> + 'static,
        <L::Service as Service<Request>>::Future: Send + 'static,
    {
        Self::guarded(Box::new(|router| router.route_layer(authentication)))
    }

    fn guarded(guard: Guard) -> Self {
        Self {
            guard,
            site: Site::default(),
            error: None,
        }
    }

    /// Serves the policies of a layer: of one that [chooses](RateLimitLayer::one_of) all that it chooses from, of one that
    /// [computes](RateLimitLayer::policy_for) its own, and what is computed under its name, algorithm and window.
    ///
    /// Give it the layer as it is set up at last: one that is made of it afterwards, by `.name(…)` say, counts for itself.
    #[must_use]
    pub fn layer(self, layer: &RateLimitLayer) -> Self {
        self.add(&layer.limiter(), layer.keyed_by().map(Some))
    }

    /// Serves the policies of a limiter.
    ///
    /// A policy is known by its name, one in shadow mode by `shadow;` and its name. Several that count together, under one name on one
    /// store, are one; its settings are those that were given first, and `other_limits` tells when others have other limits. Several of a
    /// name that count apart are an error of [`into_router`](Self::into_router).
    #[must_use]
    pub fn limiter(self, limiter: &Limiter) -> Self {
        self.add(limiter, std::iter::repeat(None))
    }

    fn add(mut self, limiter: &Limiter, keyed_by: impl Iterator<Item = Option<String>>) -> Self {
        let policies = limiter.one_by_one().zip(limiter.tallies());
        for ((one, tally), keyed_by) in policies.zip(keyed_by) {
            let added = self.site.add(Listed::new(one, tally, keyed_by));
            self.error = self.error.or(added.err());
        }
        self
    }

    /// Serves the usage that layers with [`audit`](RateLimitLayer::audit) have recorded in this store, and its health. Of several it is
    /// the last one whose usage is served. The health of the stores on which policies count is served in any case.
    #[cfg(feature = "sqlite")]
    #[must_use]
    pub fn store(mut self, store: &SqliteStore) -> Self {
        self.site.set_audit(store);
        self
    }

    /// The API, to `nest` under a path, to `merge`, or to serve on a listener of its own. It has no fallback: what it has no route for
    /// is answered by what it is mounted in.
    ///
    /// # Errors
    ///
    /// [`AdminError`] when policies of one name count apart.
    pub fn into_router(self) -> Result<Router, AdminError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(gate::finish((self.guard)(routes::router(self.site)))),
        }
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("policies", &self.site.ids().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
