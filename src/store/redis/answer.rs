//! What a script has answered: a list of whole numbers, read from the front.

use redis::Value;

use super::failure::fault;
use crate::limit::Timestamp;
use crate::limit::algorithm::fixed_window::Usage;
use crate::limit::algorithm::sliding_window::Event;
use crate::limit::algorithm::token_bucket::Bucket;
use crate::store::StoreError;

/// Numbers that are read one after another.
pub(super) struct Numbers(std::vec::IntoIter<Value>);

impl Numbers {
    pub(super) fn of(value: Value) -> Result<Self, StoreError> {
        match value {
            Value::Array(values) => Ok(Self(values.into_iter())),
            _ => Err(fault("a script did not answer a list")),
        }
    }

    /// The instant that they begin with.
    pub(super) fn first_instant(&self) -> Result<Timestamp, StoreError> {
        match self.0.as_slice().first() {
            Some(Value::Int(millis)) => Ok(Timestamp::from_unix_millis(*millis)),
            _ => Err(fault("a script has answered no instant")),
        }
    }

    /// How many are left.
    pub(super) fn left(&self) -> usize {
        self.0.len()
    }

    pub(super) fn next(&mut self) -> Result<i64, StoreError> {
        match self.0.next() {
            Some(Value::Int(number)) => Ok(number),
            _ => Err(fault("a script has answered something else than a number")),
        }
    }

    pub(super) fn count(&mut self) -> Result<u64, StoreError> {
        Ok(u64::try_from(self.next()?).unwrap_or(0))
    }

    pub(super) fn units(&mut self) -> Result<u32, StoreError> {
        Ok(u32::try_from(self.count()?).unwrap_or(u32::MAX))
    }

    pub(super) fn place(&mut self) -> Result<usize, StoreError> {
        // Lists begin at 1 there.
        let place = usize::try_from(self.next()?).ok();
        place
            .and_then(|place| place.checked_sub(1))
            .ok_or_else(|| fault("a script has answered no place of a list"))
    }

    pub(super) fn instant(&mut self) -> Result<Timestamp, StoreError> {
        self.next().map(Timestamp::from_unix_millis)
    }

    pub(super) fn usage(&mut self) -> Result<Usage, StoreError> {
        Ok(Usage {
            used: self.count()?,
            denied: self.count()?,
            epoch: self.count()?,
        })
    }

    pub(super) fn event(&mut self) -> Result<Option<Event>, StoreError> {
        if self.next()? == 0 {
            return Ok(None);
        }
        Ok(Some(Event {
            at: self.instant()?,
            units: self.count()?,
            total: self.next()?,
        }))
    }

    pub(super) fn bucket(&mut self) -> Result<Bucket, StoreError> {
        Ok(Bucket {
            at: self.instant()?,
            used: self.count()?,
            parts: self.count()?,
            since: self.instant()?,
            is_moved: false,
        })
    }
}
