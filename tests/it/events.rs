//! What the layers and limiters tell by `tracing`: names, levels and fields, and no key.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};

use tollgate::key::{self, PeerAddr};
use tollgate::{Key, Limiter, Policy, RateLimitLayer};
use tower::{Layer, ServiceBuilder};
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::support::{CLIENT, clock, from, get, hello, login, memory, send, sqlite, statuses};

/// What nobody may be told.
const SECRET: &str = "alice-s-api-key";

#[derive(Clone, Debug, PartialEq)]
struct Told {
    name: &'static str,
    level: Level,
    fields: BTreeMap<&'static str, String>,
}

impl Told {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

impl Visit for Told {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

/// Keeps every event of the library, of each level.
#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Vec<Told>>>);

impl<S: Subscriber> tracing_subscriber::Layer<S> for Ear {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target().starts_with("tollgate") {
            let mut told = Told {
                name: metadata.name(),
                level: *metadata.level(),
                fields: BTreeMap::new(),
            };
            event.record(&mut told);
            self.0.lock().unwrap().push(told);
        }
    }
}

impl Ear {
    /// Listens on this thread until the guard is dropped.
    fn listen() -> (Self, DefaultGuard) {
        // As long as there is one subscriber alone, whatever thread comes to an event first settles for all whether anybody
        // listens to it, by its own.
        static OTHER: LazyLock<Dispatch> =
            LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));
        LazyLock::force(&OTHER);
        let ear = Self::default();
        let subscriber = tracing_subscriber::registry().with(ear.clone());
        (ear, subscriber.set_default())
    }

    fn told(&self) -> Vec<Told> {
        self.0.lock().unwrap().clone()
    }

    fn of_name(&self, name: &str) -> Vec<Told> {
        let told = self.told().into_iter();
        told.filter(|told| told.name == name).collect()
    }

    fn only(&self, name: &str) -> Told {
        let mut told = self.of_name(name);
        assert_eq!(told.len(), 1, "{name} in {:?}", self.told());
        told.remove(0)
    }
}

fn numbers(told: &Told) -> [&str; 6] {
    [
        "policy",
        "cost",
        "limit",
        "used",
        "remaining",
        "retry_after_ms",
    ]
    .map(|name| told.field(name))
}

#[tokio::test]
async fn an_allowed_request_is_told_at_trace() {
    for layer in [
        login(5, 60, &memory(&clock())),
        login(5, 60, &sqlite(&clock())),
    ] {
        let (ear, _guard) = Ear::listen();
        send(&layer.cost(|_| 2).layer(hello()), from(SECRET)).await;
        let told = ear.only("tollgate.allowed");
        assert_eq!(told.level, Level::TRACE);
        assert_eq!(numbers(&told), ["login", "2", "5", "2", "3", ""]);
        assert_eq!(told.field("reset_after_ms"), "60000");
        assert_eq!(told.field("degraded"), "false");
    }
}

#[tokio::test]
async fn a_refused_request_is_told_at_debug_with_its_wait() {
    let (ear, _guard) = Ear::listen();
    let service = login(1, 60, &memory(&clock())).layer(hello());
    statuses(&service, SECRET, 3).await;
    assert_eq!(ear.of_name("tollgate.allowed").len(), 1);
    let refused = ear.of_name("tollgate.refused");
    assert_eq!(refused.len(), 2);
    assert_eq!(refused[0].level, Level::DEBUG);
    assert_eq!(numbers(&refused[0]), ["login", "1", "1", "1", "0", "60000"]);
}

#[tokio::test]
async fn a_shadow_tells_its_refusals_at_info_and_under_names_of_its_own() {
    let (ear, _guard) = Ear::listen();
    let service = login(1, 60, &memory(&clock())).shadow(true).layer(hello());
    statuses(&service, SECRET, 2).await;
    assert_eq!(ear.only("tollgate.shadow_allowed").level, Level::TRACE);
    let refused = ear.only("tollgate.shadow_refused");
    assert_eq!(refused.level, Level::INFO);
    assert_eq!(numbers(&refused), ["login", "1", "1", "1", "0", "60000"]);
    assert_eq!(ear.of_name("tollgate.refused"), []);
    assert_eq!(ear.only("tollgate.announced").field("shadow"), "true");
}

#[tokio::test]
async fn a_missing_key_is_told_at_warn_once_for_each_layer() {
    let (ear, _guard) = Ear::listen();
    let layers = [1, 2].map(|_| login(5, 60, &memory(&clock())));
    for layer in &layers {
        for _ in 0..3 {
            send(&layer.layer(hello()), get("/")).await;
        }
    }
    let told = ear.of_name("tollgate.key_missing");
    assert_eq!(told.len(), 2);
    assert_eq!(told[0].level, Level::WARN);
    assert_eq!(told[0].field("policy"), "login");
    assert_eq!(told[0].field("source"), "header x-client-key");
}

#[tokio::test]
async fn an_error_that_a_source_makes_for_the_client_is_not_told() {
    use tollgate::key::{KeyError, KeyExtractor, KeySource};

    struct Strict;

    impl KeyExtractor for Strict {
        fn extract(&self, _: &http::request::Parts) -> Result<Option<Key>, KeyError> {
            Err(KeyError::client(format!("{SECRET} is no token")))
        }
    }

    let (ear, _guard) = Ear::listen();
    let layer = RateLimitLayer::fixed(5, 60).key(KeySource::new(Strict));
    send(&layer.layer(hello()), get("/")).await;
    let told = format!("{:?}", ear.only("tollgate.key_missing"));
    assert!(!told.contains(SECRET), "{told}");
}

#[tokio::test]
async fn a_mistake_in_the_set_up_is_told_at_error_once() {
    let (ear, _guard) = Ear::listen();
    let service = RateLimitLayer::fixed(5, 60).name("all").layer(hello());
    for _ in 0..3 {
        send(&service, get("/")).await;
    }
    let told = ear.only("tollgate.setup_incomplete");
    assert_eq!(told.level, Level::ERROR);
    assert_eq!(told.field("policy"), "all");
    assert!(
        told.field("message")
            .contains("into_make_service_with_connect_info")
    );
}

#[tokio::test]
async fn a_cost_that_is_not_charged_is_told_at_warn_once() {
    let (ear, _guard) = Ear::listen();
    let store = memory(&clock());
    let service = ServiceBuilder::new()
        .layer(login(50, 60, &store))
        .layer(login(50, 60, &store).cost(|_| 5))
        .service(hello());
    statuses(&service, SECRET, 3).await;
    let told = ear.only("tollgate.cost_ignored");
    assert_eq!(told.level, Level::WARN);
    let fields = ["policy", "cost", "charged"].map(|name| told.field(name));
    assert_eq!(fields, ["login", "5", "1"]);
}

#[tokio::test]
async fn what_a_policy_is_is_told_at_info_once() {
    let (ear, _guard) = Ear::listen();
    let service = login(5, 60, &memory(&clock())).layer(hello());
    statuses(&service, SECRET, 3).await;
    let told = ear.only("tollgate.announced");
    assert_eq!(told.level, Level::INFO);
    let fields = ["policy", "limit", "window_ms", "source", "store", "shadow"];
    assert_eq!(
        fields.map(|name| told.field(name)),
        [
            "login",
            "5",
            "60000",
            "header x-client-key",
            "memory",
            "false"
        ]
    );
}

#[tokio::test]
async fn a_counter_that_is_shared_by_chance_is_told_at_warn_once() {
    let (ear, _guard) = Ear::listen();
    let store = memory(&clock());
    for limit in [5, 6, 7] {
        send(&login(limit, 60, &store).layer(hello()), from(SECRET)).await;
    }
    let told = ear.only("tollgate.shared");
    assert_eq!(told.level, Level::WARN);
    let fields = ["policy", "limit", "store"].map(|name| told.field(name));
    assert_eq!(fields, ["login", "6", "memory"]);
}

#[tokio::test]
async fn a_limiter_without_http_tells_its_decisions_and_not_its_looks() {
    let (ear, _guard) = Ear::listen();
    let mails = Limiter::new(Policy::fixed(1, 60).name("mails")).store(&memory(&clock()));
    let user = Key::new("user", SECRET);
    mails.check(&user).await.unwrap().into_result().unwrap();
    let _ = mails.peek(&user).await.unwrap();
    mails.check(&user).await.unwrap().into_result().unwrap_err();
    assert_eq!(ear.only("tollgate.allowed").field("policy"), "mails");
    assert_eq!(ear.only("tollgate.refused").field("policy"), "mails");
    assert_eq!(ear.only("tollgate.announced").field("source"), "");
}

#[tokio::test]
async fn of_several_policies_the_one_is_told_that_refused() {
    let (ear, _guard) = Ear::listen();
    let policies = [
        Policy::fixed(9, 60).name("wide"),
        Policy::fixed(1, 60).name("strict"),
    ];
    let layer = RateLimitLayer::new(policies).key(key::header(CLIENT));
    let service = layer.store(&memory(&clock())).layer(hello());
    statuses(&service, SECRET, 2).await;
    assert_eq!(ear.only("tollgate.refused").field("policy"), "strict");
}

#[tokio::test]
async fn no_event_holds_a_key_or_an_address() {
    let (ear, _guard) = Ear::listen();
    let store = sqlite(&clock());
    let request = || {
        let mut request = from(SECRET);
        let peer = "203.0.113.7:52241".parse().unwrap();
        request.extensions_mut().insert(PeerAddr(peer));
        request
    };
    for layer in [
        login(1, 60, &store),
        login(1, 60, &store).shadow(true),
        login(2, 60, &store).key(key::peer_ip()),
        login(1, 60, &store).key(key::constant(SECRET)),
        login(1, 60, &store).key(key::header("x-other").or_value(SECRET)),
        login(1, 60, &store).key(key::extension(|user: &u64| *user)),
        login(1, 60, &store).key(key::header("x-other")),
        RateLimitLayer::one_of(Policy::fixed(1, 60).name("free"), |parts| {
            parts.headers[CLIENT].to_str().unwrap()
        }),
    ] {
        for _ in 0..3 {
            send(&layer.layer(hello()), request()).await;
        }
    }
    let told = ear.told();
    for name in [
        "allowed",
        "refused",
        "shadow_refused",
        "key_missing",
        "setup_incomplete",
    ] {
        assert!(
            !ear.of_name(&format!("tollgate.{name}")).is_empty(),
            "{name}"
        );
    }
    let told = format!("{told:?}");
    for secret in [SECRET, "alice", "203.0.113.7", "52241"] {
        assert!(!told.contains(secret), "{secret} in {told}");
    }
}

#[tokio::test]
async fn every_event_has_a_stable_name() {
    let (ear, _guard) = Ear::listen();
    let store = memory(&clock());
    statuses(&login(1, 60, &store).layer(hello()), SECRET, 2).await;
    send(&login(2, 60, &store).layer(hello()), get("/")).await;
    for told in ear.told() {
        assert!(told.name.starts_with("tollgate."), "{told:?}");
    }
}

#[tokio::test]
async fn a_refund_that_is_a_layer_outsides_is_told_at_warn_once() {
    let (ear, _guard) = Ear::listen();
    let outer = login(9, 60, &memory(&clock()));
    let inner = outer.clone().refund_if(|status| status.is_success());
    let service = outer.layer(inner.layer(hello()));
    assert_eq!(statuses(&service, "alice", 3).await, [200, 200, 200]);
    let told = ear.only("tollgate.refund_ignored");
    assert_eq!(told.level, Level::WARN);
    assert_eq!(told.field("policy"), "login");
}

#[tokio::test]
async fn one_name_for_two_limits_around_a_request_is_told_at_warn_once() {
    let (ear, _guard) = Ear::listen();
    let store = memory(&clock());
    let outer = login(9, 60, &store);
    let inner = login(5, 60, &store);
    let service = outer.layer(inner.layer(hello()));
    assert_eq!(statuses(&service, "alice", 3).await, [200, 200, 200]);
    let told = ear.only("tollgate.name_twice");
    assert_eq!(told.level, Level::WARN);
    // The same limit on a router and on a route is one.
    let (ear, _guard) = Ear::listen();
    let both = outer.layer(outer.layer(hello()));
    assert_eq!(statuses(&both, "bob", 2).await, [200, 200]);
    assert_eq!(ear.of_name("tollgate.name_twice").len(), 0);
}
