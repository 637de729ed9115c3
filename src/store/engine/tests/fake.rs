//! A backend that a test holds and breaks.

use super::*;
use crate::clock;

/// A backend that admits everything, except for keys that tell it to do something else.
pub(super) struct Fake {
    pub(super) remote: Arc<Remote>,
    /// Told when a call is under way.
    pub(super) events: mpsc::UnboundedSender<&'static str>,
}

/// What a server shows whose clock is far behind.
pub(super) const SERVERS: Timestamp = Timestamp::from_unix_millis(0);

pub(super) fn failure() -> StoreError {
    StoreError::Database {
        is_transient: true,
        source: Arc::new(std::fmt::Error),
    }
}

fn grant(ahead: &Ahead, at: Timestamp) -> Grant {
    Grant {
        at,
        span: ahead.part.span(at),
        units: ahead.units,
        state: ahead.part.unused(at),
        in_force: None,
    }
}

impl Backend for Fake {
    async fn open(&mut self) -> Result<(), StoreError> {
        #[cfg(feature = "metrics")]
        meters::record(&self.remote);
        if let Some(server) = &self.remote.server {
            server.heard(clock::monotonic(), SERVERS);
        }
        Ok(())
    }

    async fn charge(&mut self, batch: Batch<'_>, clock: &Clock) -> Result<Charged, StoreError> {
        let charges = batch.charges;
        let keys: Vec<_> = charges
            .iter()
            .map(|charge| charge.parts.first().key.as_str().to_owned())
            .collect();
        let has = |key: &str| keys.iter().any(|other| other == key);
        let (panics, hangs, fails) = (has("do:panic"), has("do:hang"), has("do:fail"));
        self.remote.batches.lock().unwrap().push(keys);
        self.events.send("charge").unwrap();
        if hangs {
            self.remote.release.notified().await;
        }
        assert!(!panics, "as the test wants it");
        if fails {
            return Err(failure());
        }
        let now = clock.now();
        let answer = |charge: &Charge| match charge.parts.first().key.as_str() {
            "do:fill" => Err(StoreError::Full),
            _ => Ok(admitted(charge, now)),
        };
        let is_granted =
            |ahead: &&Ahead| ["do:stuck", "do:left"].contains(&ahead.part.key.as_str());
        let granted = batch.ahead.iter().filter(is_granted);
        Ok(Charged::of(
            charges.iter().map(answer).collect(),
            granted.map(|ahead| grant(ahead, now)),
        ))
    }

    async fn give_back(
        &mut self,
        units: &[GiveBack],
        _: &Clock,
    ) -> Result<Vec<GiveBack>, StoreError> {
        self.remote.give_back(units, &self.events).await
    }

    async fn peek(&mut self, looks: &[Charge], clock: &Clock) -> Result<Vec<Outcome>, StoreError> {
        let now = clock.now();
        self.remote.looks.fetch_add(looks.len(), Ordering::SeqCst);
        Ok(looks.iter().map(|look| admitted(look, now)).collect())
    }

    async fn reset(&mut self, _: &Reset, after: Option<Cursor>) -> Result<Page, StoreError> {
        Ok(page_of(3, after))
    }

    async fn sweep(
        &mut self,
        _: Timestamp,
        after: Option<Cursor>,
        _: u32,
    ) -> Result<Page, StoreError> {
        self.events.send("sweep").unwrap();
        Ok(page_of(2, after))
    }

    async fn record(&mut self, calls: &Calls) -> Result<(), StoreError> {
        self.note(calls)
    }

    /// Without an end, so that a page of something else is seen to come between; of one policy a single page.
    async fn usage(&mut self, ask: &UsageAsk, _: Option<Cursor>) -> Result<UsagePage, StoreError> {
        self.events.send("usage").unwrap();
        let next = ask.policy.is_none().then(Cursor::default);
        Ok(UsagePage {
            next,
            ..UsagePage::default()
        })
    }

    async fn set_limit(&mut self, _: &SetLimit) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn limits(&mut self, _: &LimitsAsk) -> Result<Limits, StoreError> {
        Ok(Limits::new())
    }

    async fn count_refused(&mut self, _: &[Attempts]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn changes(&mut self, _: Option<i64>) -> Result<Changes, StoreError> {
        let freed = Some(Vec::new());
        Ok(Changes { last: 0, freed })
    }

    fn take_lost(&mut self) -> bool {
        false
    }

    async fn maintain(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&mut self) -> Result<(), StoreError> {
        self.remote.is_closed.store(true, Ordering::SeqCst);
        self.events.send("close").unwrap();
        Ok(())
    }
}
