//! What one would write without this crate: one upsert for each decision, on a pool.

use std::path::Path;

use anyhow::{Context, Result};
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Router, http};
use sqlx::{Row, SqlitePool};

use crate::keys::Keys;
use crate::{keys, pool, refusal};

/// As this crate's table, without what it keeps beside the count.
const CREATE: &str = "
CREATE TABLE IF NOT EXISTS windows (
    policy TEXT NOT NULL,
    key TEXT NOT NULL,
    window_start INTEGER NOT NULL,
    used INTEGER NOT NULL,
    PRIMARY KEY (policy, key, window_start)
) STRICT, WITHOUT ROWID
";

const UPSERT: &str = "
INSERT INTO windows (policy, key, window_start, used) VALUES ('bench', $1, 0, 1)
ON CONFLICT (policy, key, window_start) DO UPDATE SET used = used + 1
RETURNING used
";

/// What the upsert makes of the first request of each key.
const FILL: &str = "
WITH RECURSIVE numbers (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number + 1 < $1)
INSERT INTO windows (policy, key, window_start, used)
SELECT 'bench', printf('client-%0*d', $2, number), 0, 1 FROM numbers
";

/// A pool, with the table.
#[derive(Clone)]
pub(crate) struct Upsert {
    pool: SqlitePool,
}

impl Upsert {
    pub(crate) async fn open(database: &Path, pool_size: u32) -> Result<Self> {
        let pool = pool::open(database, pool_size, CREATE).await?;
        Ok(Self { pool })
    }

    /// Counts one, and says whether that was within a limit.
    pub(crate) async fn is_allowed(&self, key: &str, limit: u32) -> Result<bool> {
        // `fetch_one` would leave the statement unfinished, and the WAL without checkpoints.
        let rows = sqlx::query(UPSERT).bind(key).fetch_all(&self.pool).await?;
        let row = rows.first().context("an upsert returned no row")?;
        Ok(row.try_get::<i64, _>(0)? <= i64::from(limit))
    }

    /// Counts one request of each key.
    pub(crate) async fn fill(&self, keys: Keys) -> Result<()> {
        if keys.count() > 0 {
            let digits = i64::try_from(keys.digits())?;
            let fill = sqlx::query(FILL).bind(i64::from(keys.count())).bind(digits);
            fill.execute(&self.pool).await?;
        }
        Ok(())
    }

    /// The settings that hold, as SQLite tells them.
    pub(crate) async fn settings(&self) -> Result<String> {
        pool::settings(&self.pool).await
    }
}

/// Puts the upsert in front of the router.
pub(crate) fn limit(router: Router, upsert: Upsert, limit: u32) -> Router {
    router.layer(middleware::from_fn_with_state((upsert, limit), charge))
}

async fn charge(
    State((upsert, limit)): State<(Upsert, u32)>,
    request: Request,
    next: Next,
) -> Response {
    let value = request.headers().get(keys::HEADER);
    let Some(key) = value.and_then(|value| value.to_str().ok()) else {
        return http::StatusCode::BAD_REQUEST.into_response();
    };
    match upsert.is_allowed(key, limit).await {
        Ok(true) => next.run(request).await,
        Ok(false) => refusal::answer(limit),
        Err(_) => http::StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
