//! Mistakes in a set-up: each has a name, which ends its message and is a heading of `docs/errors.md`.

mod servers;

use std::collections::BTreeSet;
use std::fs;
use std::panic::{UnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tollgate::key::{self, ForwardedHeader, KeyError, NetworkError, TrustedProxies};
use tollgate::{
    Admin, AdminKey, Key, Limit, Limiter, MemoryStore, OpenError, Policy, PolicyError,
    RateLimitLayer,
};
use tower::Layer;

use crate::support::{capture_log, clock, from, get, hello, login_in_memory, memory, send};
use crate::tidy::{files, source};

/// The names that the code gives to mistakes.
fn names_in_code() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files(&source()) {
        let text = fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let mistakes = code.split("Mistake(\"").skip(1);
        names.extend(mistakes.map(|rest| rest.split('"').next().unwrap().to_owned()));
    }
    names
}

/// The names that the page has a heading for, each with what is below it.
fn sections() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors.md");
    let page = fs::read_to_string(page).unwrap();
    let sections = page.split("\n### ").skip(1).map(|section| {
        let (name, text) = section.split_once('\n').unwrap();
        (name.to_owned(), text.to_owned())
    });
    sections.collect()
}

/// The name at the end of the message of a log line, behind which its fields are.
fn name_in_line(line: &str) -> String {
    let (message, _fields) = line.rsplit_once(']').unwrap();
    name_in(&format!("{message}]"))
}

/// The name at the end of a message, after what the message says.
fn name_in(message: &str) -> String {
    let (said, name) = message
        .strip_suffix(']')
        .unwrap()
        .rsplit_once(" [")
        .unwrap();
    assert!(said.len() > 20, "{message}");
    assert!(!message.contains('\n'), "{message}");
    name.to_owned()
}

fn policy_errors() -> [PolicyError; 11] {
    [
        PolicyError::ZeroWindow,
        PolicyError::WindowTooLong,
        PolicyError::WindowFraction,
        PolicyError::InvalidName("a b".to_owned()),
        PolicyError::BurstTooLarge,
        PolicyError::BurstWithoutBucket,
        PolicyError::InvalidBlock,
        PolicyError::NoPolicy,
        PolicyError::DuplicateName("login".to_owned()),
        PolicyError::SeveralPolicies,
        PolicyError::KeysApart,
    ]
}

fn open_errors() -> [OpenError; 15] {
    let path = || "limits.db".into();
    [
        OpenError::InvalidUrl("no scheme".to_owned()),
        OpenError::NotAPath(path()),
        OpenError::IsFolder(path()),
        OpenError::NoFolder(path()),
        OpenError::NotFound(path()),
        OpenError::NotWritable(path()),
        OpenError::NotADatabase(path()),
        OpenError::Damaged(path()),
        OpenError::DiskFull(path()),
        OpenError::Locked(path()),
        OpenError::PoolInMemory,
        OpenError::NameTaken("rate_limit_events".to_owned()),
        OpenError::SchemaTooNew {
            oldest_reader: 9,
            supported: 1,
        },
        OpenError::SqliteTooOld {
            found: "3.36.0".to_owned(),
        },
        OpenError::Failed(Arc::new(std::fmt::Error)),
    ]
}

fn network_errors() -> [NetworkError; 4] {
    [
        NetworkError::Invalid("10.0.0".to_owned()),
        NetworkError::HostBits("10.0.0.0/8".to_owned()),
        NetworkError::Everything("::/0".to_owned()),
        NetworkError::NoAddress("header x-api-key".to_owned()),
    ]
}

/// Those of the sources of keys.
fn key_errors() -> [KeyError; 5] {
    let (parts, ()) = http::Request::new(()).into_parts();
    let of = |source: key::KeySource| source.extract(&parts).unwrap_err();
    let long = key::from_fn(|_: &Parts| Key::new("user", "x".repeat(65)));
    [
        of(key::peer_ip()),
        of(key::client_ip(
            ForwardedHeader::forwarded(),
            TrustedProxies::hops(1),
        )),
        of(key::extension(|id: &u64| *id)),
        of(key::matched_route()),
        of(long.normalized(str::to_lowercase)),
    ]
}

/// Those of the functions that choose a policy, as their 500 tells them.
async fn choices() -> [String; 2] {
    let detail_of = async |layer: RateLimitLayer| {
        let service = layer.key(key::constant("all")).layer(hello());
        let answer = send(&service, get("/")).await;
        assert_eq!(answer.status, 500);
        answer.json()["detail"].as_str().unwrap().to_owned()
    };
    let policy = |name: &str| Policy::fixed(3, 60).name(name);
    let beside = RateLimitLayer::new(policy("own")).and(policy("beside"), key::constant("all"));
    [
        detail_of(RateLimitLayer::one_of([policy("free")], |_| "gold")).await,
        detail_of(beside.policy_for(move |_| Some(policy("beside")))).await,
    ]
}

/// The message of a panic.
fn panic_of<T>(build: impl FnOnce() -> T + UnwindSafe) -> String {
    let Err(panic) = catch_unwind(build) else {
        panic!("nothing was wrong");
    };
    *panic.downcast::<String>().unwrap()
}

/// Each short constructor and setter that can panic, and the name that it ends with.
fn panics() -> Vec<(String, &'static str)> {
    let layer = || RateLimitLayer::fixed(3, 60);
    let two = || RateLimitLayer::new([Policy::fixed(3, 60), Policy::fixed(9, 600)]);
    let day = Duration::from_hours(24);
    vec![
        (panic_of(|| RateLimitLayer::fixed(3, 0)), "zero-window"),
        (panic_of(|| layer().block_after(0, day)), "invalid-block"),
        (panic_of(|| two().name("two")), "several-policies"),
        (panic_of(|| two().burst(9)), "several-policies"),
        (panic_of(|| two().block_for(day)), "several-policies"),
        (panic_of(|| two().policy_for(|_| None)), "several-policies"),
        (panic_of(|| layer().partition_key("")), "empty-secret"),
        (panic_of(|| key::header("x-key").hashed("")), "empty-secret"),
        (panic_of(|| key::header("no header")), "invalid-header-name"),
        (
            panic_of(|| ForwardedHeader::single("no header")),
            "invalid-header-name",
        ),
        (panic_of(|| key::peer_ip_by_prefix(129)), "ipv6-prefix"),
        (panic_of(|| TrustedProxies::hops(0)), "proxy-hops"),
        (
            panic_of(|| TrustedProxies::networks(["10.0.0"])),
            "invalid-network",
        ),
        (
            panic_of(|| layer().exempt_networks(["10.1.2.3/8"])),
            "network-host-bits",
        ),
        (
            panic_of(|| layer().exempt_networks(["::/0"])),
            "network-of-everybody",
        ),
        (
            panic_of(|| {
                let layer = layer().exempt_networks(["10.0.0.0/8"]);
                layer.key(key::constant("all"))
            }),
            "key-without-address",
        ),
    ]
}

async fn too_many_keys() -> tollgate::StoreError {
    let limiter = Limiter::new(Policy::fixed(3, 60)).store(&MemoryStore::new());
    let keys = [Key::new("user", 1), Key::new("user", 2)];
    limiter.check(&keys).await.unwrap_err()
}

async fn foreign_decision() -> tollgate::StoreError {
    let [one, other] = [(); 2].map(|()| {
        let limiter = Limiter::new(Policy::fixed(3, 60).name("p"));
        limiter.store(&MemoryStore::new())
    });
    let decision = one.check(Key::new("user", 1)).await.unwrap();
    other.refund(&decision).await.unwrap_err()
}

/// Limits that can't be set.
async fn limits() -> [tollgate::StoreError; 3] {
    let limiter = Limiter::new(Policy::fixed(3, 60).name("p")).store(&MemoryStore::new());
    let key = Key::new("user", 1);
    let long = (0..200).fold(key.clone(), |key, n| key.and("part", n));
    let ended = Limit::BLOCKED.ends_after(Duration::ZERO);
    [
        limiter.set_limit("q", &key, 1).await.unwrap_err(),
        limiter.set_limit("p", &key, ended).await.unwrap_err(),
        limiter.set_limit("p", &long, 1).await.unwrap_err(),
    ]
}

/// Those of the admin API, each with its name.
fn admin_errors() -> [(String, &'static str); 3] {
    let of = |error: tollgate::AdminKeyError| (error.to_string(), error.name());
    let limiter = || Limiter::new(Policy::fixed(3, 60)).store(&MemoryStore::new());
    let key = AdminKey::new("0123456789abcdef").unwrap();
    let admin = Admin::new(key).limiter(&limiter()).limiter(&limiter());
    let twice = admin.into_router().unwrap_err();
    [
        of(AdminKey::new("").unwrap_err()),
        of(AdminKey::new("0123456789abcdef\n").unwrap_err()),
        (twice.to_string(), twice.name()),
    ]
}

/// The lines that warn of counters which two limits share.
async fn warnings() -> Vec<String> {
    let log = capture_log();
    let store = memory(&clock());
    let limit = |limit| RateLimitLayer::fixed(limit, 60).store(&store);
    for layer in [
        limit(3),
        limit(3),
        limit(4).name("login"),
        limit(5).name("login"),
    ] {
        let service = layer.key(key::constant("all")).layer(hello());
        assert_eq!(send(&service, get("/")).await.status, 200);
    }
    // One around the other.
    let [outer, inner] = [9, 5].map(|limit| {
        let store = memory(&clock());
        RateLimitLayer::fixed(limit, 60)
            .name("nested")
            .key(key::constant("all"))
            .store(&store)
    });
    let nested = outer.layer(inner.layer(hello()));
    assert_eq!(send(&nested, get("/")).await.status, 200);
    log.lines_with("WARN")
}

#[test]
fn the_page_has_a_heading_for_each_name_and_no_other() {
    let headings: Vec<_> = sections().into_iter().map(|(name, _)| name).collect();
    let names: BTreeSet<_> = headings.iter().cloned().collect();
    assert_eq!(names.len(), headings.len(), "a heading comes twice");
    assert_eq!(names, names_in_code());
}

#[test]
fn each_section_of_the_page_shows_a_cure() {
    for (name, text) in sections() {
        assert!(text.contains("\n```"), "{name} shows no cure");
    }
}

#[test]
fn names_are_in_kebab_case() {
    let is_kebab = |name: &str| {
        name.split('-').all(|word| {
            let mut letters = word.bytes();
            !word.is_empty() && letters.all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9'))
        })
    };
    for name in names_in_code() {
        assert!(is_kebab(&name), "{name}");
    }
}

#[tokio::test]
async fn each_message_ends_with_its_name_and_none_is_left_out() {
    let mut names = BTreeSet::new();
    for error in policy_errors() {
        assert_eq!(name_in(&error.to_string()), error.name());
        names.insert(error.name().to_owned());
    }
    for error in network_errors() {
        assert_eq!(name_in(&error.to_string()), error.name());
        names.insert(error.name().to_owned());
    }
    for error in open_errors() {
        assert_eq!(name_in(&error.to_string()), error.name());
        names.insert(error.name().to_owned());
    }
    names.extend(servers::postgres_names().map(str::to_owned));
    names.extend(servers::redis_names().map(str::to_owned));
    for error in key_errors() {
        assert_eq!(Some(&*name_in(&error.to_string())), error.name());
        names.extend(error.name().map(str::to_owned));
    }
    let [unknown, ended, long] = limits().await;
    for error in [
        too_many_keys().await,
        foreign_decision().await,
        unknown,
        ended,
        long,
    ] {
        assert_eq!(Some(&*name_in(&error.to_string())), error.name());
        names.extend(error.name().map(str::to_owned));
    }
    for (message, name) in panics().into_iter().chain(admin_errors()) {
        assert_eq!(name_in(&message), name);
        names.insert(name.to_owned());
    }
    names.extend(choices().await.iter().map(|detail| name_in(detail)));
    names.extend(warnings().await.iter().map(|line| name_in_line(line)));
    assert_eq!(names, names_in_code());
}

#[tokio::test]
async fn the_body_and_the_log_line_of_a_500_end_with_the_name() {
    let log = capture_log();
    let service = login_in_memory(3, 60).key(key::peer_ip()).layer(hello());
    let answer = send(&service, from("alice")).await;
    assert_eq!(answer.status, 500);
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(name_in(&detail), "no-peer-address");
    let lines = log.lines_with("has no key for a request");
    assert_eq!(name_in_line(&lines[0]), "no-peer-address");
}

#[test]
fn what_a_client_did_wrong_has_no_name() {
    let (parts, ()) = http::Request::new(()).into_parts();
    let error = key::header("x-api-key").extract(&parts).unwrap_err();
    assert_eq!(error.name(), None);
    assert!(!error.to_string().ends_with(']'), "{error}");
}
