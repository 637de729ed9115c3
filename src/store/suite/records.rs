//! What a database must do to keep records, for several connections at once.
//!
//! The suite of stores has one store each, which never races with itself: it passes also where nobody compares what a record was.

use super::*;
use crate::store::records::{RecordChange, RecordStore, RecordWrite, Records};

/// Databases delete what has expired by themselves, by the time of day.
const EXPIRES_AT: i64 = NOON + 86_400_000;
/// So many change one record at once, and so often.
const RACING: usize = 4;
const TIMES: usize = 50;

/// A database under test, and how to connect to it.
pub struct Shared<F> {
    connect: F,
    pub(super) runtime: Runtime,
}

impl<F> fmt::Debug for Shared<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl<R: Records, F: Fn() -> R> Shared<F> {
    pub fn new(open: impl AsyncFnOnce() -> F) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let connect = runtime.block_on(open());
        Self { connect, runtime }
    }

    fn connection(&self) -> Connection<R> {
        let mut connection = Connection {
            records: (self.connect)(),
            runtime: Builder::new_current_thread().enable_all().build().unwrap(),
        };
        let opened = connection.runtime.block_on(connection.records.open());
        opened.unwrap();
        connection
    }

    pub(super) fn store(&self, clock: &ManualClock) -> Handle {
        let store = RecordStore::new("suite", (self.connect)()).clock(clock);
        let store = store.handle().0;
        store.wait_at_length();
        store
    }
}

/// One of those who share it.
struct Connection<R> {
    records: R,
    runtime: Runtime,
}

impl<R: Records> Connection<R> {
    fn read(&mut self, keys: &[String]) -> Vec<Option<String>> {
        let read = self.runtime.block_on(self.records.read(keys)).unwrap();
        assert_eq!(read.values.len(), keys.len(), "a value for each key");
        read.values
    }

    fn value(&mut self, key: &str) -> Option<String> {
        self.read(&[key.to_owned()]).pop().unwrap()
    }

    fn change_all(&mut self, changes: &[RecordChange]) -> Vec<bool> {
        let made = self.runtime.block_on(self.records.change(changes));
        assert_eq!(made.len(), changes.len(), "an answer for each change");
        made.into_iter().map(Result::unwrap).collect()
    }

    fn change(&mut self, writes: &[Write<'_>]) -> bool {
        self.change_all(&[change(writes)])[0]
    }

    fn put(&mut self, key: &str, value: &str) {
        assert!(self.change(&[(key, None, Some(value))]), "{key:?} is new");
    }

    fn list(&mut self, after: &str, before: &str, most: usize) -> Vec<String> {
        let listed = self.records.list(after, before, most);
        let listed = self.runtime.block_on(listed).unwrap();
        for (key, value) in &listed {
            assert_eq!(*value, value_of(key), "the value of {key:?}");
        }
        listed.into_iter().map(|(key, _)| key).collect()
    }
}

/// A key, what its record must still be, and what it becomes.
type Write<'a> = (&'a str, Option<&'a str>, Option<&'a str>);

fn change(writes: &[Write<'_>]) -> RecordChange {
    let writes = writes.iter().map(|(key, before, after)| RecordWrite {
        key: (*key).to_owned(),
        before: before.map(str::to_owned),
        after: after.map(str::to_owned),
        expires_at: after.map(|_| Timestamp::from_unix_millis(EXPIRES_AT)),
    });
    RecordChange {
        writes: writes.collect(),
    }
}

/// Keys that a database may take for one another, or sort by the rules of a language, in the order of their bytes.
fn odd_keys() -> Vec<String> {
    let long = "k".repeat(1_300);
    let last = char::MAX.to_string();
    let mut keys: Vec<_> = [
        " ",
        "%",
        "'",
        "\"",
        "\\",
        "*",
        "A",
        "B",
        "_",
        "a",
        "a\t",
        "a\t1",
        "a\n",
        "a ",
        "a:b",
        "aa",
        "ab",
        "b",
        "ss",
        "ß",
        "ä",
        "a\u{308}",
        "\u{212b}",
        "\u{e000}",
        "\u{1f980}",
        &long,
        &last,
    ]
    .map(str::to_owned)
    .into();
    keys.sort_unstable();
    keys
}

fn value_of(key: &str) -> String {
    format!("value of {key} ")
}

/// Puts all keys there, in another order than theirs.
fn put_all<R: Records>(connection: &mut Connection<R>, keys: &[String]) {
    for key in keys.iter().step_by(2).chain(keys.iter().skip(1).step_by(2)) {
        connection.put(key, &value_of(key));
    }
}

pub fn records_are_read_each_in_its_keys_place<R: Records, F: Fn() -> R>(shared: &Shared<F>) {
    let (mut one, mut other) = (shared.connection(), shared.connection());
    let keys = odd_keys();
    put_all(&mut one, &keys);
    let many = (0..3_000).map(|n| format!("none\t{n}"));
    let asked: Vec<_> = many.chain(keys.iter().rev().cloned()).collect();
    let values = other.read(&asked);
    for (key, value) in asked.iter().zip(values) {
        let expected = (!key.starts_with("none")).then(|| value_of(key));
        assert_eq!(value, expected, "{key:?}");
    }
    let long = "9 events".to_owned() + &" 1700000000000 1".repeat(10_000);
    one.put("long", &long);
    assert_eq!(other.value("long"), Some(long));
}

pub fn a_record_changes_only_if_it_is_what_it_was<R: Records, F: Fn() -> R>(shared: &Shared<F>) {
    let (mut one, mut other) = (shared.connection(), shared.connection());
    one.put("a", "1");
    assert!(!other.change(&[("a", None, Some("2"))]), "there is one");
    assert!(!other.change(&[("a", Some("3"), Some("2"))]), "another one");
    assert!(
        !other.change(&[("a", Some("1 "), Some("2"))]),
        "a longer one"
    );
    assert!(
        !other.change(&[("b", Some("1"), Some("2"))]),
        "there is none"
    );
    assert_eq!(
        one.read(&["a".to_owned(), "b".to_owned()]),
        [Some("1".to_owned()), None]
    );
    assert!(other.change(&[("a", Some("1"), Some("2"))]));
    assert!(!one.change(&[("a", Some("1"), Some("3"))]), "not any more");
    assert_eq!(one.value("a").as_deref(), Some("2"));
}

pub fn a_record_is_deleted_only_if_it_is_what_it_was<R: Records, F: Fn() -> R>(shared: &Shared<F>) {
    let (mut one, mut other) = (shared.connection(), shared.connection());
    one.put("a", "1");
    assert!(!other.change(&[("a", Some("2"), None)]));
    assert_eq!(one.value("a").as_deref(), Some("1"));
    assert!(other.change(&[("a", Some("1"), None)]));
    assert!(!one.change(&[("a", Some("1"), None)]), "it is gone");
    assert!(!one.change(&[("a", Some("1"), Some("2"))]), "it is gone");
    assert_eq!(one.value("a"), None);
    one.put("a", "1");
    assert_eq!(other.value("a").as_deref(), Some("1"));
}

/// It is neither written nor deleted, and the others hang on it all the same.
pub fn a_record_that_stays_is_needed_as_it_was<R: Records, F: Fn() -> R>(shared: &Shared<F>) {
    let mut one = shared.connection();
    one.put("a", "1");
    assert!(!one.change(&[("a", Some("2"), Some("2")), ("b", None, Some("1"))]));
    assert!(!one.change(&[("a", None, None), ("b", None, Some("1"))]));
    assert!(!one.change(&[("b", None, Some("1")), ("c", Some("1"), Some("1"))]));
    assert_eq!(one.value("b"), None);
    assert!(one.change(&[
        ("a", Some("1"), Some("1")),
        ("b", None, Some("1")),
        ("c", None, None)
    ]));
    assert_eq!(one.value("a").as_deref(), Some("1"));
    assert_eq!(one.value("b").as_deref(), Some("1"));
    assert_eq!(one.value("c"), None);
}

pub fn a_change_is_made_whole_or_not_at_all<R: Records, F: Fn() -> R>(shared: &Shared<F>) {
    let (mut one, mut other) = (shared.connection(), shared.connection());
    let keys: Vec<_> = (0..100).map(|n| format!("key\t{n}")).collect();
    let writes = || keys.iter().map(|key| (key.as_str(), None, Some("1")));
    // The first, one in the middle, the last.
    for overtaken in [0, 50, 99] {
        other.put(&keys[overtaken], "0");
        assert!(!one.change(&writes().collect::<Vec<_>>()), "{overtaken}");
        let values = other.read(&keys);
        let written = values.iter().flatten().filter(|value| *value == "1");
        assert_eq!(written.count(), 0, "half a change was made");
        assert!(other.change(&[(&keys[overtaken], Some("0"), None)]));
    }
    assert!(one.change(&writes().collect::<Vec<_>>()));
    assert!(
        other
            .read(&keys)
            .iter()
            .all(|value| value.as_deref() == Some("1"))
    );
}

pub fn each_change_of_a_call_is_made_for_itself<R: Records, F: Fn() -> R>(shared: &Shared<F>) {
    let (mut one, mut other) = (shared.connection(), shared.connection());
    other.put("c", "1");
    let changes = [
        change(&[("a", None, Some("2"))]),
        change(&[("b", None, Some("2")), ("c", None, Some("2"))]),
        change(&[("d", None, Some("2")), ("e", None, Some("2"))]),
    ];
    assert_eq!(one.change_all(&changes), [true, false, true]);
    let keys = ["a", "b", "c", "d", "e"].map(str::to_owned);
    let values = other.read(&keys);
    let values: Vec<_> = values.iter().map(Option::as_deref).collect();
    assert_eq!(values, [Some("2"), None, Some("1"), Some("2"), Some("2")]);
}

pub fn records_are_listed_in_the_order_of_their_bytes<R: Records, F: Fn() -> R>(
    shared: &Shared<F>,
) {
    let (mut one, mut other) = (shared.connection(), shared.connection());
    let keys = odd_keys();
    put_all(&mut one, &keys);
    let end = format!("{}~", char::MAX);
    assert_eq!(other.list("", &end, 1_000), keys);
    for (place, key) in keys.iter().enumerate() {
        assert_eq!(
            other.list(key, &end, 1_000),
            keys[place + 1..],
            "after {key:?}"
        );
        assert_eq!(other.list("", key, 1_000), keys[..place], "before {key:?}");
        let next = keys[place + 1..].iter().take(3);
        let next: Vec<_> = next.cloned().collect();
        assert_eq!(other.list(key, &end, 3), next, "three after {key:?}");
    }
    assert!(
        other.list("a", "a\t", 1_000).is_empty(),
        "nothing is between them"
    );
}

/// All of them have read a number, and each adds one to it.
pub fn nothing_is_lost_of_what_many_change_at_once<R: Records, F: Fn() -> R>(shared: &Shared<F>) {
    let mut connections: Vec<_> = (0..RACING).map(|_| shared.connection()).collect();
    connections[0].put("sum", "0");
    let mut sum = 0;
    for _ in 0..TIMES {
        let (before, after) = (sum.to_string(), (sum + 1).to_string());
        for connection in &mut connections {
            assert_eq!(connection.value("sum").as_ref(), Some(&before));
        }
        let write: Write<'_> = ("sum", Some(&before), Some(&after));
        let made = std::thread::scope(|scope| {
            let threads = connections.iter_mut();
            let threads =
                threads.map(|connection| scope.spawn(move || connection.change(&[write])));
            let threads: Vec<_> = threads.collect();
            let made = threads.into_iter().map(|thread| thread.join().unwrap());
            made.filter(|made| *made).count()
        });
        assert!(made <= 1, "{made} of them were the first");
        sum += made;
    }
    assert!(sum > 0, "nobody ever was the first");
}

/// Makes a test of each thing that a database must do for [`Records`](crate::Records), with the features `records` and `test-util`: that a
/// change compares, that it is made whole or not at all, also when many change the same record, that records are listed in the order of
/// their bytes, and that several stores on one database let no more than the limit pass.
///
/// It takes a closure that opens a new, empty database, and returns a function that connects to it: each time as somebody else,
/// with a connection of its own. What must outlive the connections, a temporary folder say, is kept by that function. Several run at
/// once, so each needs records of its own.
///
/// [`store_suite!`](crate::store_suite) proves what is made of them, in one process: an implementation runs both.
///
/// ```
/// # use std::collections::BTreeMap;
/// # use std::ops::Bound;
/// # use std::sync::{Arc, Mutex};
/// # use tollgate::{ReadRecords, RecordChange, RecordStore, Records, StoreError};
/// # #[derive(Clone, Default)]
/// # struct OurRecords(Arc<Mutex<BTreeMap<String, String>>>);
/// # impl Records for OurRecords {
/// #     async fn read(&mut self, _: &[String]) -> Result<ReadRecords, StoreError> { Err(StoreError::Closed) }
/// #     async fn change(&mut self, _: &[RecordChange]) -> Vec<Result<bool, StoreError>> { Vec::new() }
/// #     async fn list(&mut self, _: &str, _: &str, _: usize) -> Result<Vec<(String, String)>, StoreError> { Err(StoreError::Closed) }
/// # }
/// mod our_records {
///     # use super::*;
///     tollgate::records_suite!(async || {
///         let database = OurRecords::default();
///         move || database.clone()
///     });
///
///     tollgate::store_suite!(async |clock| {
///         (RecordStore::new("ours", OurRecords::default()).clock(&clock), ())
///     });
/// }
/// # fn main() {}
/// ```
#[cfg(feature = "test-util")]
#[macro_export]
macro_rules! records_suite {
    ($open:expr) => {
        $crate::__store_suite!($crate::__suite::Shared::new($open);
            records_are_read_each_in_its_keys_place,
            a_record_changes_only_if_it_is_what_it_was,
            a_record_is_deleted_only_if_it_is_what_it_was,
            a_record_that_stays_is_needed_as_it_was,
            a_change_is_made_whole_or_not_at_all,
            each_change_of_a_call_is_made_for_itself,
            records_are_listed_in_the_order_of_their_bytes,
            nothing_is_lost_of_what_many_change_at_once,
            stores_that_share_a_database_let_the_limit_pass_and_no_more,
            a_store_sees_what_another_one_resets_and_sets,
        );
    };
}
