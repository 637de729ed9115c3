//! The example `service`, started as a newcomer starts it.
//!
//! It runs on the system's clock, so a window of the clock may end at any moment: nothing here counts on one.

use std::collections::BTreeSet;
use std::process::Command;

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate::{Days, Key, SqliteStore};

use crate::processes::example;
use crate::support::Server;

const ADMIN_KEY: &str = "6c1f0a7be2d94f5bb2c17ef0d3a1e8a4";
const ALICE: &str = "key-of-alice";
const BOB: &str = "key-of-bob";

struct Service {
    server: Server,
    admin_url: String,
    client: Client,
}

impl Service {
    fn start() -> Self {
        let variables = [
            ("ADMIN_KEY", ADMIN_KEY),
            ("ADMIN_ADDR", "127.0.0.1:0"),
            ("RUST_LOG", "error"),
        ];
        let server = Server::start_with("service", &variables);
        Self {
            admin_url: admin_url(&server),
            client: Client::new(),
            server,
        }
    }

    /// Kills it, and starts it anew on the same file.
    fn restart(&mut self) {
        self.server.restart();
        self.admin_url = admin_url(&self.server);
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.server.url);
        self.client.request(method, url)
    }

    async fn get(&self, path: &str, key: &str) -> Response {
        let request = self.request(Method::GET, path);
        request.header("X-Api-Key", key).send().await.unwrap()
    }

    async fn import(&self, key: &str, bytes: usize) -> Response {
        let request = self.request(Method::POST, "/import");
        let request = request.header("X-Api-Key", key).body(vec![b'x'; bytes]);
        request.send().await.unwrap()
    }

    async fn admin(&self, method: Method, path: &str, body: Option<Value>) -> Response {
        let url = format!("{}{path}", self.admin_url);
        let mut request = self.client.request(method, url);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let request = request.header("X-Admin-Key", ADMIN_KEY);
        request.send().await.unwrap()
    }

    /// What the admin API tells.
    async fn told(&self, path: &str) -> Value {
        let answer = self.admin(Method::GET, path, None).await;
        assert_eq!(answer.status(), 200, "{path}");
        answer.json().await.unwrap()
    }
}

fn admin_url(server: &Server) -> String {
    let line = server.line("admin API and metrics on ");
    line.split(';').next().unwrap().to_owned()
}

/// Which policies a 429 says were violated.
async fn violated(response: Response) -> Value {
    assert_eq!(response.status(), 429);
    let content_type = &response.headers()["content-type"];
    assert_eq!(content_type, "application/problem+json");
    let problem: Value = response.json().await.unwrap();
    problem["violated-policies"].clone()
}

fn policies(response: &Response) -> Vec<&str> {
    let lines = response.headers().get_all("ratelimit-policy").iter();
    lines.map(|line| line.to_str().unwrap()).collect()
}

#[tokio::test]
async fn who_sends_no_known_key_gets_a_problem_document() {
    let service = Service::start();
    let without = service.request(Method::GET, "/hello").send().await.unwrap();
    for response in [without, service.get("/hello", "guess").await] {
        assert_eq!(response.status(), 401);
        assert_eq!(response.headers()["www-authenticate"], "X-Api-Key");
        let content_type = &response.headers()["content-type"];
        assert_eq!(content_type, "application/problem+json");
        assert_eq!(policies(&response), ["\"global\";q=300;w=60"]);
        let problem: Value = response.json().await.unwrap();
        assert_eq!(problem["status"], 401);
        assert_eq!(problem["title"], "Unauthorized");
    }
    let known = service.get("/hello", ALICE).await;
    assert_eq!(known.status(), 200);
    assert_eq!(
        policies(&known),
        ["\"free\";q=30;w=3600", "\"global\";q=300;w=60"]
    );
    assert_eq!(known.text().await.unwrap(), "hello, account 1\n");
}

#[tokio::test]
async fn who_guesses_is_shut_out_with_good_keys_too_and_a_restart_changes_nothing() {
    let mut service = Service::start();
    for _ in 0..12 {
        // Good keys are no guesses, however many.
        assert_eq!(service.get("/hello", BOB).await.status(), 200);
    }
    for guess in 0..10 {
        let guess = format!("guess-{guess}");
        assert_eq!(service.get("/hello", &guess).await.status(), 401);
    }
    // All ten are used, so that not even a good key is looked at.
    assert_eq!(
        violated(service.get("/hello", BOB).await).await,
        json!(["guesses"])
    );
    let refused = service.get("/hello", "guess-10").await;
    assert_eq!(refused.headers()["retry-after"], "3600");
    assert_eq!(violated(refused).await, json!(["guesses"]));
    service.restart();
    assert_eq!(
        violated(service.get("/hello", BOB).await).await,
        json!(["guesses"])
    );

    let refused = service.get("/hello", "guess-11").await;
    assert_eq!(violated(refused).await, json!(["guesses"]));
    let refused = service.told("/refused").await;
    assert_eq!(refused["keys"][0]["policy"], "guesses", "{refused}");
    assert_eq!(refused["keys"][0]["key"], "ip:127.0.0.1");
    let path = "/counters?policy=guesses&key=ip:127.0.0.1";
    let reset = service.admin(Method::DELETE, path, None).await;
    assert_eq!(reset.json::<Value>().await.unwrap()["units"], 10);
    assert_eq!(service.get("/hello", BOB).await.status(), 200);
}

#[tokio::test]
async fn a_plan_is_used_up_and_an_operator_lets_the_account_through_at_once() {
    let service = Service::start();
    let mut refused = None;
    // Two hours hold sixty requests.
    for _ in 0..61 {
        let response = service.get("/hello", ALICE).await;
        if response.status() != 200 {
            refused = Some(response);
            break;
        }
    }
    let refused = refused.unwrap();
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(violated(refused).await, json!(["free"]));
    // Others have their own, and to look is free.
    assert_eq!(service.get("/hello", BOB).await.status(), 200);
    let usage = service.get("/me/usage", ALICE).await;
    assert_eq!(usage.status(), 200);
    let usage: Value = usage.json().await.unwrap();
    assert_eq!(usage["account"], 1);
    assert_eq!(usage["routes"][0]["route"], "/hello");

    let policies = service.told("/policies").await;
    let policies = policies["policies"].as_array().unwrap().iter();
    let ids: Vec<_> = policies.map(|policy| policy["id"].clone()).collect();
    assert_eq!(ids, ["free", "global", "guesses", "imports", "pro"]);
    let refused = service.told("/refused?policy=free").await;
    assert_eq!(refused["keys"][0]["key"], "account:1", "{refused}");

    let limit = Some(json!({"limit": 1_000, "ends_after_seconds": 3_600}));
    let path = "/limit?policy=free&key=account:1";
    let set = service.admin(Method::PUT, path, limit).await;
    assert_eq!(set.status(), 200);
    let allowed = service.get("/hello", ALICE).await;
    assert_eq!(allowed.status(), 200);
    assert_eq!(
        allowed.headers()["ratelimit-policy"],
        "\"free\";q=1000;w=3600"
    );
}

#[tokio::test]
async fn an_import_pays_by_its_size_inside_of_plan_and_global() {
    let service = Service::start();
    let first = service.import(BOB, 60_000).await;
    assert_eq!(first.status(), 200);
    let all = [
        "\"imports\";q=10;w=60",
        "\"pro\";q=100000;w=86400",
        "\"global\";q=300;w=60",
    ];
    assert_eq!(policies(&first), all);
    assert_eq!(first.headers()["ratelimit"], "\"imports\";r=4;t=60");
    let refused = service.import(BOB, 60_000).await;
    assert_eq!(policies(&refused), all);
    assert_eq!(violated(refused).await, json!(["imports"]));
    // Each account has its own.
    assert_eq!(service.import(ALICE, 60_000).await.status(), 200);
    assert_eq!(service.import(ALICE, 64_001).await.status(), 413);
    // Another route goes on.
    assert_eq!(service.get("/hello", BOB).await.status(), 200);
}

#[tokio::test]
async fn the_global_limit_is_for_everybody_but_the_health_check() {
    let service = Service::start();
    let mut refused = None;
    // Two minutes hold six hundred requests.
    for _ in 0..601 {
        let response = service.request(Method::GET, "/").send().await.unwrap();
        if response.status() != 404 {
            refused = Some(response);
            break;
        }
    }
    assert_eq!(violated(refused.unwrap()).await, json!(["global"]));
    let health = service.request(Method::GET, "/healthz");
    let health = health.send().await.unwrap();
    assert_eq!(health.status(), 200);
    assert!(policies(&health).is_empty());
}

#[tokio::test]
async fn what_operators_read_is_on_the_other_listener_alone() {
    let service = Service::start();
    for path in ["/policies", "/refused", "/openapi.json", "/metrics"] {
        let request = service.request(Method::GET, path);
        let request = request.header("X-Admin-Key", ADMIN_KEY);
        assert_eq!(request.send().await.unwrap().status(), 404, "{path}");
    }
    let url = format!("{}/policies", service.admin_url);
    let request = service.client.get(url).header("X-Admin-Key", "a wrong key");
    assert_eq!(request.send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn metrics_are_described_and_tell_of_nobody() {
    let service = Service::start();
    for key in [ALICE, BOB, "guess"] {
        service.get("/hello", key).await;
    }
    let metrics = service.admin(Method::GET, "/metrics", None).await;
    assert_eq!(
        metrics.headers()["content-type"],
        "text/plain; version=0.0.4"
    );
    let metrics = metrics.text().await.unwrap();
    for policy in ["global", "guesses", "free", "pro"] {
        let count = format!(
            "tollgate_decisions_total{{policy=\"{policy}\",outcome=\"allowed\",degraded=\"false\"}} "
        );
        assert!(metrics.contains(&count), "{metrics}");
    }
    let series = || metrics.lines().filter(|line| !line.is_empty());
    let kinds = series().filter_map(|line| line.strip_prefix("# TYPE "));
    for name in kinds.map(|line| line.split(' ').next().unwrap()) {
        assert!(metrics.contains(&format!("# HELP {name} ")), "{name}");
    }
    let labels: BTreeSet<_> = series()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split_once('{')?.1.split_once('}')?.0))
        .flat_map(|labels| labels.split(','))
        .filter_map(|label| label.split_once('='))
        .collect();
    let names: BTreeSet<_> = labels.iter().map(|(name, _)| *name).collect();
    let described = [
        "answered_by",
        "degraded",
        "outcome",
        "policy",
        "quantile",
        "store",
    ];
    assert_eq!(names, BTreeSet::from(described));
    for caller in ["127.0.0.1", "account", "key-of", "alice", "bob"] {
        assert!(!metrics.contains(caller), "{caller}: {metrics}");
    }
}

#[tokio::test]
async fn it_answers_what_is_under_way_and_writes_what_was_used_before_it_ends() {
    let mut service = Service::start();
    assert_eq!(service.get("/hello", BOB).await.status(), 200);
    assert_eq!(service.import(BOB, 60_000).await.status(), 200);
    assert_eq!(service.import(BOB, 60_000).await.status(), 429);

    let address = service.server.url.strip_prefix("http://").unwrap();
    let mut idle = TcpStream::connect(address).await.unwrap();
    let health = "GET /healthz HTTP/1.1\r\nHost: service\r\n\r\n";
    idle.write_all(health.as_bytes()).await.unwrap();
    read_until(&mut idle, "ok\n").await;
    let mut slow = TcpStream::connect(address).await.unwrap();
    let head = "POST /import HTTP/1.1\r\nHost: service\r\nX-Api-Key: key-of-bob\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    slow.write_all(head.as_bytes()).await.unwrap();
    // It is said when the handler begins to read.
    read_until(&mut slow, "100 Continue\r\n\r\n").await;

    service.server.ask_to_end();
    // It stops: an idle connection is closed.
    assert_eq!(idle.read(&mut [0]).await.unwrap(), 0);
    slow.write_all(b"hello").await.unwrap();
    read_until(&mut slow, "imported 5 bytes\n").await;
    assert!(service.server.terminate().success());

    let store = SqliteStore::open(service.server.database()).await.unwrap();
    let years = Days::parse("2025-01-01", "2034-12-31").unwrap();
    let usage = store.usage(years).key(&Key::new("account", 2));
    let routes = usage.by_route().await.unwrap();
    let routes = routes.iter();
    let routes: Vec<_> = routes
        .map(|(route, used)| (&**route, used.requests(), used.units()))
        .collect();
    // What was refused further inside is recorded, and not paid for.
    assert_eq!(routes, [("/import", 3, 2), ("/hello", 1, 1)]);
    store.close().await.unwrap();
}

async fn read_until(stream: &mut TcpStream, end: &str) {
    let mut read = Vec::new();
    while !read.ends_with(end.as_bytes()) {
        let count = stream.read_buf(&mut read).await.unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&read));
    }
}

#[test]
fn without_a_good_environment_it_does_not_start_and_names_the_variable() {
    for (name, value) in [
        ("ADMIN_KEY", ""),
        ("ADMIN_KEY", "short"),
        ("ADDR", "nowhere"),
        ("ADMIN_ADDR", "127.0.0.1"),
        ("DATABASE_URL", "postgres://localhost"),
        ("TRUSTED_PROXIES", "10.1.2.3/8"),
        ("RUST_LOG", "tollgate=loud"),
    ] {
        let ended = Command::new(example("service"))
            .env("ADMIN_KEY", ADMIN_KEY)
            .env("DATABASE_URL", "sqlite::memory:")
            .env(name, value)
            .output()
            .unwrap();
        assert_eq!(ended.status.code(), Some(1), "{name}");
        let told = String::from_utf8(ended.stderr).unwrap();
        assert!(told.starts_with(&format!("error: {name}: ")), "{told}");
        assert!(ended.stdout.is_empty(), "{name}");
    }
}
