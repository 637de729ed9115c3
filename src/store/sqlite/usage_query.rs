//! Questions about what was used.

use super::SqliteStore;
use super::tables::fault;
use crate::limit::{Day, Days, Key};
use crate::store::engine::{By, UsageAsk};
use crate::store::{StoreError, Usage};

/// A question about what was used, made by [`SqliteStore::usage`].
///
/// It is answered from sums for each day, key, policy and route, so it does not matter how many requests there were, nor whether
/// they are still kept one by one. All that this process has recorded until now is in the answer; of another process, what it
/// has written: that of a moment ago.
///
/// The sums are read a page at a time, and charges go between the pages.
///
/// # Examples
///
/// ```
/// use tollgate::{Days, SqliteStore};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = SqliteStore::in_memory();
/// let week = Days::parse("2026-12-07", "2026-12-13")?;
///
/// for (day, usage) in store.usage(week).policy("api").by_day().await? {
///     println!("{day}: {} requests, {} units", usage.requests(), usage.units());
/// }
/// // Who has used most:
/// for (key, usage) in store.usage(week).by_key(10).await? {
///     println!("{}: {} units", key.as_str(), usage.units());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a question is answered by total, by_day and the like"]
pub struct UsageQuery {
    store: SqliteStore,
    days: Days,
    key: Option<Key>,
    policy: Option<String>,
    route: Option<String>,
}

impl UsageQuery {
    pub(super) fn new(store: SqliteStore, days: Days) -> Self {
        Self {
            store,
            days,
            key: None,
            policy: None,
            route: None,
        }
    }

    /// Asks about this key alone, rather than about all.
    pub fn key(mut self, key: &Key) -> Self {
        self.key = Some(key.clone());
        self
    }

    /// Asks about the policy of this name alone, rather than about all. A request that several nested layers have recorded counts
    /// once for each of them.
    pub fn policy(mut self, name: &str) -> Self {
        self.policy = Some(name.to_owned());
        self
    }

    /// Asks about this route alone, as the router has it (`/user/{id}`), rather than about all.
    pub fn route(mut self, route: &str) -> Self {
        self.route = Some(route.to_owned());
        self
    }

    /// What was used in all.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store gives no answer within 10 s, or what was recorded can't be written.
    pub async fn total(&self) -> Result<Usage, StoreError> {
        let sums = self.sums(By::Nothing).await?;
        Ok(sums
            .into_iter()
            .next()
            .map_or_else(Usage::default, |sum| sum.1))
    }

    /// What was used on each day, the earliest first. Days on which nothing was are left out.
    ///
    /// # Errors
    ///
    /// As [`total`](Self::total).
    pub async fn by_day(&self) -> Result<Vec<(Day, Usage)>, StoreError> {
        let sums = self.sums(By::Day).await?.into_iter();
        let days = sums.map(|(day, usage)| match day.parse() {
            Ok(day) => Ok((Day::from_unix_days(day), usage)),
            Err(_) => Err(fault("a day is stored that is none")),
        });
        let mut days = days.collect::<Result<Vec<_>, _>>()?;
        days.sort_by_key(|(day, _)| *day);
        Ok(days)
    }

    /// What was used on each route, that with the most units first. A route that was not known is empty.
    ///
    /// # Errors
    ///
    /// As [`total`](Self::total).
    pub async fn by_route(&self) -> Result<Vec<(String, Usage)>, StoreError> {
        Ok(most_first(self.sums(By::Route).await?))
    }

    /// What was used under each policy, that with the most units first.
    ///
    /// # Errors
    ///
    /// As [`total`](Self::total).
    pub async fn by_policy(&self) -> Result<Vec<(String, Usage)>, StoreError> {
        Ok(most_first(self.sums(By::Policy).await?))
    }

    /// What was used by each key, that with the most units first, and of those with as many in the order of their texts: the first
    /// `most` of them.
    ///
    /// # Errors
    ///
    /// As [`total`](Self::total), and [`StoreError::TooManyKeys`] when more than 262,144 keys were used on these days.
    pub async fn by_key(&self, most: usize) -> Result<Vec<(Key, Usage)>, StoreError> {
        let mut sums = most_first(self.sums(By::Key).await?);
        sums.truncate(most);
        let keys = sums.into_iter().map(|(key, usage)| match key.parse() {
            Ok(key) => Ok((key, usage)),
            Err(_) => Err(fault("a key is stored that is none")),
        });
        keys.collect()
    }

    async fn sums(&self, by: By) -> Result<Vec<(String, Usage)>, StoreError> {
        let ask = UsageAsk {
            days: self.days,
            key: self.key.as_ref().map(|key| key.as_str().to_owned()),
            policy: self.policy.clone(),
            route: self.route.clone(),
            by,
        };
        let sums = self.store.engine.usage(ask).await?.into_iter();
        let usage = |(label, (requests, units))| (label, Usage::new(requests, units));
        Ok(sums.map(usage).collect())
    }
}

/// They come in the order of their labels, and those with as many units stay in it.
fn most_first(mut sums: Vec<(String, Usage)>) -> Vec<(String, Usage)> {
    sums.sort_by_key(|(_, usage)| std::cmp::Reverse((usage.units(), usage.requests())));
    sums
}
