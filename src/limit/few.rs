//! One value or several.

/// One value or several: never none. One alone needs no allocation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Few<T> {
    first: T,
    rest: Box<[T]>,
}

impl<T> Few<T> {
    pub(crate) fn one(value: T) -> Self {
        Self {
            first: value,
            rest: Box::default(),
        }
    }

    /// `None` when there is nothing in it.
    pub(crate) fn collect(values: impl IntoIterator<Item = T>) -> Option<Self> {
        let mut values = values.into_iter();
        Some(Self {
            first: values.next()?,
            rest: values.collect(),
        })
    }

    /// This with more values behind it.
    pub(crate) fn with(self, more: Vec<T>) -> Self {
        Self {
            first: self.first,
            rest: self.rest.into_iter().chain(more).collect(),
        }
    }

    pub(crate) fn first(&self) -> &T {
        &self.first
    }

    /// The value, when it is the only one.
    pub(crate) fn only(&self) -> Option<&T> {
        self.rest.is_empty().then_some(&self.first)
    }

    pub(crate) fn len(&self) -> usize {
        1 + self.rest.len()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        let values = Values {
            first: Some(&self.first),
            rest: self.rest.iter(),
        };
        debug_assert_eq!(values.len(), self.len());
        values
    }

    /// The values of what may be none.
    pub(crate) fn iter_some(
        few: Option<&Self>,
    ) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        Values {
            first: few.map(|few| &few.first),
            rest: few.map_or(&[][..], |few| &few.rest).iter(),
        }
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        std::iter::once(&mut self.first).chain(&mut self.rest)
    }

    pub(crate) fn map<'a, U>(&'a self, mut change: impl FnMut(&'a T) -> U) -> Few<U> {
        Few {
            first: change(&self.first),
            rest: boxed(self.rest.iter().map(change)),
        }
    }

    pub(crate) fn into_map<U>(self, mut change: impl FnMut(T) -> U) -> Few<U> {
        Few {
            first: change(self.first),
            rest: boxed(self.rest.into_iter().map(change)),
        }
    }

    /// What becomes of all values; when nothing becomes of one, what became of those before it.
    #[cfg(feature = "_engine")]
    pub(crate) fn try_map<'a, U>(
        &'a self,
        mut change: impl FnMut(&'a T) -> Option<U>,
    ) -> Result<Few<U>, Option<Few<U>>> {
        let Some(first) = change(&self.first) else {
            return Err(None);
        };
        // Mostly all of them change.
        let mut rest = Vec::with_capacity(self.rest.len());
        rest.extend(self.rest.iter().map_while(change));
        let is_whole = rest.len() == self.rest.len();
        let changed = Few {
            first,
            rest: rest.into(),
        };
        if is_whole {
            Ok(changed)
        } else {
            Err(Some(changed))
        }
    }

    /// The value at `index`, or the first.
    pub(crate) fn get_or_first(&self, index: usize) -> &T {
        index
            .checked_sub(1)
            .and_then(|index| self.rest.get(index))
            .unwrap_or(&self.first)
    }
}

impl<T: Clone> Clone for Few<T> {
    fn clone(&self) -> Self {
        self.map(T::clone)
    }
}

/// Few are several: what collects and boxes is not gone through for nothing.
fn boxed<T>(rest: impl ExactSizeIterator<Item = T>) -> Box<[T]> {
    if rest.len() == 0 {
        Box::default()
    } else {
        rest.collect()
    }
}

/// `Chain` does not know its length.
struct Values<'a, T> {
    first: Option<&'a T>,
    rest: std::slice::Iter<'a, T>,
}

impl<'a, T> Iterator for Values<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<Self::Item> {
        self.first.take().or_else(|| self.rest.next())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let length = usize::from(self.first.is_some()) + self.rest.len();
        (length, Some(length))
    }
}

impl<T> DoubleEndedIterator for Values<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.rest.next_back().or_else(|| self.first.take())
    }
}

impl<T> ExactSizeIterator for Values<'_, T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_order_from_both_ends() {
        let few = Few::collect([1, 2, 3]).unwrap();
        assert_eq!(few.iter().copied().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(few.iter().rev().copied().collect::<Vec<_>>(), [3, 2, 1]);
        assert_eq!((few.len(), few.iter().len()), (3, 3));
        assert_eq!([0, 2, 9].map(|index| *few.get_or_first(index)), [1, 3, 1]);
        assert_eq!(few.map(|n| n * 2), Few::collect([2, 4, 6]).unwrap());
    }

    #[cfg(feature = "_engine")]
    #[test]
    fn what_becomes_of_the_first_values_is_not_lost() {
        let few = Few::collect([1, 2, 3]).unwrap();
        let below = |end| few.try_map(move |n| (*n < end).then_some(n * 2));
        assert_eq!(below(4), Ok(Few::collect([2, 4, 6]).unwrap()));
        assert_eq!(below(3), Err(Few::collect([2, 4])));
        assert_eq!(below(2), Err(Few::collect([2])));
        assert_eq!(below(1), Err(None));
    }

    #[test]
    fn none_is_none_and_one_is_the_only_one() {
        assert_eq!(Few::<u8>::collect([]), None);
        assert_eq!(Few::one(1).only(), Some(&1));
        assert_eq!(Few::collect([1, 2]).unwrap().only(), None);
    }
}
