//! The example `sliding_window`, over HTTP: what it answers, and what it withstands.
//!
//! It runs on the system's clock: what a test does within a minute is in one window.

use reqwest::{Body, Client, Method, RequestBuilder, Url};
use sqlx::{Connection, Executor, Row, SqliteConnection};
use tollgate::{Key, Limiter, MemoryStore, Policy, SqliteStore, Timestamp};

use crate::support::{Answer, Server, clock};

const SECRET: &str = "open sesame";
const SEARCH: &str = r#"{"endpoint":"/search"}"#;

/// What a header or a path may say instead of a user's id.
const NO_USER_IDS: [&str; 11] = [
    "-1",
    "0",
    "000",
    "abc",
    "+7",
    "7.0",
    "0x7",
    "7 7",
    "1e3",
    "1234567890123456789",
    "12345678901234567890",
];

/// What `endpoint` may be instead of an endpoint, in a query.
fn no_endpoints() -> [(&'static str, String); 5] {
    [
        ("empty", String::new()),
        ("blank", " \t\n".to_owned()),
        ("blank in Unicode", "\u{2003}\u{a0}".to_owned()),
        ("129 characters", "x".repeat(129)),
        ("129 characters of 4 bytes", "🦀".repeat(129)),
    ]
}

/// A running example whose admin knows [`SECRET`].
struct Api {
    server: Server,
    client: Client,
}

impl Api {
    fn start() -> Self {
        Self::start_with(&[("ADMIN_KEY", SECRET)])
    }

    fn start_with(variables: &[(&str, &str)]) -> Self {
        let server = Server::start_with("sliding_window", variables);
        let client = Client::builder().no_proxy().build().unwrap();
        Self { server, client }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.server.url);
        self.client.request(method, url)
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.request(Method::GET, path)
    }

    fn delete(&self, path: &str) -> RequestBuilder {
        self.request(Method::DELETE, path)
    }

    fn post(&self, body: impl Into<Body>) -> RequestBuilder {
        self.request(Method::POST, "/rate/check").body(body)
    }

    async fn check(&self, user: &str, endpoint: &str) -> Answer {
        let body = serde_json::json!({ "endpoint": endpoint }).to_string();
        send(self.post(body).header("X-User-Id", user)).await
    }

    async fn status(&self, user: &str, endpoint: &str) -> Answer {
        let path = with_endpoint("/rate/status", endpoint);
        send(self.get(&path).header("X-User-Id", user)).await
    }

    async fn reset(&self, path: &str) -> Answer {
        send(self.delete(path).header("X-Admin-Key", SECRET)).await
    }

    async fn count(&self, user: &str, endpoint: &str) -> u64 {
        let answer = self.status(user, endpoint).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["count"].as_u64().unwrap()
    }

    /// Checks as often, and is always allowed.
    async fn use_up(&self, user: &str, endpoint: &str, times: u64) {
        for _ in 0..times {
            let answer = self.check(user, endpoint).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }

    /// Another connection to the example's database.
    async fn database(&self) -> SqliteConnection {
        let url = format!("sqlite://{}", self.server.database().display());
        SqliteConnection::connect(&url).await.unwrap()
    }
}

async fn send(request: RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    Answer::read(http::Response::<Body>::from(response)).await
}

fn with_endpoint(path: &str, endpoint: &str) -> String {
    let mut url = Url::parse("http://localhost").unwrap();
    url.query_pairs_mut().append_pair("endpoint", endpoint);
    format!("{path}?{}", url.query().unwrap())
}

/// The instant on the system's clock, which the library reads.
async fn now() -> Timestamp {
    let limiter = Limiter::new(Policy::fixed(1, 1)).store(&MemoryStore::new());
    let decision = limiter.peek(&Key::constant("now")).await.unwrap();
    decision.decided_at()
}

#[track_caller]
fn assert_problem(answer: &Answer, status: u16, case: &str) {
    let said = format!("{case}: {}", answer.text());
    assert_eq!(answer.status, status, "{said}");
    let content_type = answer.only("content-type");
    assert_eq!(content_type, "application/problem+json", "{said}");
    let problem = answer.json();
    assert_eq!(problem["status"], status, "{said}");
    for member in ["type", "title", "detail"] {
        let is_said = problem[member]
            .as_str()
            .is_some_and(|text| !text.is_empty());
        assert!(is_said, "{member} in {said}");
    }
}

#[tokio::test]
async fn a_check_a_status_and_a_reset_answer_with_exactly_these_bodies() {
    let api = Api::start();
    let checked = api.check("7", "/search").await;
    assert_eq!(checked.status, 200);
    assert_eq!(checked.only("content-type"), "application/json");
    assert_eq!(
        checked.text(),
        r#"{"status":"ok","count":1,"limit":10,"remaining":9}"#
    );
    let checked = api.check("7", "/search").await;
    assert_eq!(
        checked.text(),
        r#"{"status":"ok","count":2,"limit":10,"remaining":8}"#
    );
    let status = api.status("7", "/search").await;
    assert_eq!(status.status, 200);
    assert_eq!(status.only("content-type"), "application/json");
    assert_eq!(
        status.text(),
        r#"{"endpoint":"/search","count":2,"limit":10,"remaining":8,"window_seconds":60}"#
    );
    let reset = api.reset("/rate/reset/7").await;
    assert_eq!(reset.status, 200);
    assert_eq!(reset.only("content-type"), "application/json");
    assert_eq!(reset.text(), r#"{"reset":true,"removed":2}"#);
}

#[tokio::test]
async fn the_eleventh_check_is_refused_and_told_how_long_to_wait() {
    let api = Api::start();
    api.use_up("7", "/search", 10).await;
    let refused = api.check("7", "/search").await;
    assert_problem(&refused, 429, "the eleventh");
    let wait: u64 = refused.only("retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(refused.only("cache-control"), "no-store");
    assert_eq!(refused.only("ratelimit-policy"), r#""rate";q=10;w=60"#);
    let problem = refused.json();
    assert_eq!(problem["retry_after"], wait);
    assert_eq!(problem["limit"], 10);
    assert_eq!(problem["window_seconds"], 60);
    assert_eq!(problem["violated-policies"], serde_json::json!(["rate"]));
}

#[tokio::test]
async fn a_refused_check_records_nothing() {
    let api = Api::start();
    api.use_up("7", "/search", 10).await;
    for _ in 0..5 {
        assert_eq!(api.check("7", "/search").await.status, 429);
    }
    assert_eq!(api.count("7", "/search").await, 10);
    let reset = api.reset("/rate/reset/7").await;
    assert_eq!(reset.json()["removed"], 10);
}

#[tokio::test]
async fn another_endpoint_and_another_user_have_windows_of_their_own() {
    let api = Api::start();
    api.use_up("7", "/search", 10).await;
    assert_eq!(api.check("7", "/search").await.status, 429);
    for (user, endpoint) in [("7", "/mail"), ("8", "/search"), ("71", "/search")] {
        let answer = api.check(user, endpoint).await;
        assert_eq!(answer.json()["count"], 1, "{user} {endpoint}");
    }
}

#[tokio::test]
async fn the_status_uses_nothing() {
    let api = Api::start();
    for _ in 0..12 {
        assert_eq!(api.count("7", "/search").await, 0);
    }
    api.use_up("7", "/search", 10).await;
    let status = api.status("7", "/search").await;
    assert_eq!(
        status.text(),
        r#"{"endpoint":"/search","count":10,"limit":10,"remaining":0,"window_seconds":60}"#
    );
}

#[tokio::test]
async fn a_reset_forgets_all_endpoints_of_this_user_alone() {
    let api = Api::start();
    api.use_up("7", "/search", 10).await;
    api.use_up("7", "/mail", 3).await;
    api.use_up("71", "/search", 2).await;
    assert_eq!(api.check("7", "/search").await.status, 429);
    for removed in [13, 0] {
        let reset = api.reset("/rate/reset/7").await;
        assert_eq!(reset.json()["removed"], removed);
    }
    assert_eq!(api.count("7", "/search").await, 0);
    assert_eq!(api.count("71", "/search").await, 2);
    api.use_up("7", "/search", 1).await;
}

#[tokio::test]
async fn a_reset_of_one_endpoint_leaves_the_others() {
    let api = Api::start();
    api.use_up("7", "/search", 10).await;
    api.use_up("7", "/search/deep", 2).await;
    api.use_up("7", "/mail", 3).await;
    for (endpoint, removed) in [("/search", 10), ("/search", 0), ("/nothing", 0)] {
        let reset = api.reset(&with_endpoint("/rate/reset/7", endpoint)).await;
        assert_eq!(reset.json()["removed"], removed, "{endpoint}");
    }
    assert_eq!(api.count("7", "/search").await, 0);
    assert_eq!(api.count("7", "/search/deep").await, 2);
    assert_eq!(api.count("7", "/mail").await, 3);
}

#[tokio::test]
async fn leading_zeros_make_no_other_user() {
    let api = Api::start();
    api.use_up("7", "/search", 5).await;
    api.use_up("007", "/search", 5).await;
    assert_eq!(api.check("000000000000000007", "/search").await.status, 429);
    let reset = api.reset("/rate/reset/0007").await;
    assert_eq!(reset.json()["removed"], 10);
}

#[tokio::test]
async fn a_user_id_of_eighteen_digits_is_one() {
    let api = Api::start();
    let id = "9".repeat(18);
    api.use_up(&id, "/search", 1).await;
    assert_eq!(api.count("7", "/search").await, 0);
    let reset = api.reset(&format!("/rate/reset/{id}")).await;
    assert_eq!(reset.json()["removed"], 1);
}

#[tokio::test]
async fn only_the_last_minute_counts_wherever_it_began() {
    let api = Api::start();
    let database = api.server.database();
    let (clock, now) = (clock(), now().await);
    let store = SqliteStore::open(database).await.unwrap().clock(&clock);
    let earlier = Limiter::new(Policy::sliding(10, 60).name("rate")).store(&store);
    let key = Key::new("user", 7).and("endpoint", "/search");
    for (seconds, units) in [(90, 4), (30, 6)] {
        let at = now.unix_millis() - seconds * 1_000;
        clock.set(Timestamp::from_unix_millis(at));
        assert!(earlier.check_n(&key, units).await.unwrap().is_allowed());
    }
    assert_eq!(api.count("7", "/search").await, 6);
    api.use_up("7", "/search", 4).await;
    let refused = api.check("7", "/search").await;
    assert_problem(&refused, 429, "the fifth");
    let wait: u64 = refused.only("retry-after").parse().unwrap();
    assert!((1..=30).contains(&wait), "{wait}");
    let reset = api.reset("/rate/reset/7").await;
    assert_eq!(reset.json()["removed"], 10);
}

#[tokio::test]
async fn what_was_answered_survives_a_kill() {
    let mut api = Api::start();
    api.use_up("7", "/search", 6).await;
    api.server.restart();
    assert_eq!(api.count("7", "/search").await, 6);
    api.use_up("7", "/search", 4).await;
    api.server.restart();
    assert_problem(&api.check("7", "/search").await, 429, "after a kill");
}

#[tokio::test]
async fn of_fifty_checks_at_once_exactly_ten_pass() {
    let api = Api::start();
    let tasks: Vec<_> = (0..50)
        .map(|_| tokio::spawn(send(api.post(SEARCH).header("X-User-Id", "7"))))
        .collect();
    let mut counts = Vec::new();
    for task in tasks {
        let answer = task.await.unwrap();
        match answer.status {
            200 => counts.push(answer.json()["count"].as_u64().unwrap()),
            _ => assert_problem(&answer, 429, "one of fifty"),
        }
    }
    counts.sort_unstable();
    assert_eq!(counts, (1..=10).collect::<Vec<_>>());
    assert_eq!(api.count("7", "/search").await, 10);
}

#[tokio::test]
async fn a_body_is_json_whatever_its_content_type() {
    let api = Api::start();
    for content_type in ["application/x-www-form-urlencoded", "text/plain", ""] {
        let request = api.post(SEARCH).header("X-User-Id", "7");
        let answer = send(request.header("Content-Type", content_type)).await;
        assert_eq!(answer.status, 200, "{content_type}: {}", answer.text());
    }
}

#[tokio::test]
async fn an_endpoint_of_128_characters_passes_however_long_they_are() {
    let api = Api::start();
    for character in ["x", "é", "🦀"] {
        let endpoint = character.repeat(128);
        api.use_up("7", &endpoint, 1).await;
        let status = api.status("7", &endpoint).await;
        assert_eq!(status.json()["endpoint"], *endpoint);
        assert_eq!(status.json()["count"], 1);
    }
}

#[tokio::test]
async fn an_endpoint_is_kept_byte_for_byte() {
    let api = Api::start();
    let endpoints = [
        "/a",
        " /a",
        "/a ",
        "/A",
        "/a/",
        "/a\0",
        "/a\n",
        "/a|b",
        "/a%7Cb",
        "/a+b",
        "/a b",
        "/é",
        "/e\u{301}",
        "\"",
        "\\",
        "\u{feff}/a",
        "/a&endpoint=/b",
        "\u{200b}",
    ];
    for endpoint in endpoints {
        assert_eq!(api.count("7", endpoint).await, 0, "{endpoint:?}");
        api.use_up("7", endpoint, 1).await;
        let status = api.status("7", endpoint).await;
        assert_eq!(status.json()["endpoint"], endpoint);
        assert_eq!(status.json()["count"], 1, "{endpoint:?}");
    }
    let reset = api.reset("/rate/reset/7").await;
    assert_eq!(reset.json()["removed"], endpoints.len());
}

#[tokio::test]
async fn sql_in_an_endpoint_is_stored_as_text_and_the_tables_survive() {
    let api = Api::start();
    api.use_up("8", "/search", 2).await;
    let attacks = [
        "'; DROP TABLE rate_limit_events; --",
        "x' OR '1'='1",
        "\"; DELETE FROM rate_limit_windows; --",
        "/search') ON CONFLICT DO NOTHING; --",
    ];
    for attack in attacks {
        api.use_up("7", attack, 1).await;
        assert_eq!(api.count("7", attack).await, 1, "{attack}");
    }
    let mut database = api.database().await;
    let rows = database
        .fetch_all("SELECT key FROM rate_limit_events WHERE key LIKE 'user:7|%'")
        .await
        .unwrap();
    let mut stored: Vec<String> = rows.iter().map(|row| row.get("key")).collect();
    let mut expected = attacks.map(|attack| format!("user:7|endpoint:{attack}"));
    stored.sort_unstable();
    expected.sort_unstable();
    assert_eq!(stored, expected);

    let path = with_endpoint("/rate/reset/7", attacks[1]);
    assert_eq!(api.reset(&path).await.json()["removed"], 1);
    assert_eq!(api.reset("/rate/reset/7").await.json()["removed"], 3);
    assert_eq!(api.count("8", "/search").await, 2);
}

#[tokio::test]
async fn who_sends_no_user_id_is_refused() {
    let api = Api::start();
    assert_problem(&send(api.post(SEARCH)).await, 400, "check");
    let status = api.get("/rate/status?endpoint=/search");
    assert_problem(&send(status).await, 400, "status");
}

#[tokio::test]
async fn a_user_id_in_the_header_is_a_positive_integer_of_digits_alone() {
    let api = Api::start();
    for id in NO_USER_IDS.into_iter().chain(["", "７", "7,8"]) {
        assert_problem(&api.check(id, "/search").await, 400, id);
        assert_problem(&api.status(id, "/search").await, 400, id);
    }
}

#[tokio::test]
async fn two_user_ids_are_none() {
    let api = Api::start();
    let twice = api.post(SEARCH).header("X-User-Id", "7");
    let twice = twice.header("X-User-Id", "8");
    assert_problem(&send(twice).await, 400, "twice");
    assert_eq!(api.count("7", "/search").await, 0);
    assert_eq!(api.count("8", "/search").await, 0);
}

#[tokio::test]
async fn a_user_id_in_the_path_is_a_positive_integer_of_digits_alone() {
    let api = Api::start();
    for id in NO_USER_IDS
        .into_iter()
        .chain(["%20", "%FF", "%EF%BC%97", "7%2F8", "7%00", "7/8", ""])
    {
        let answer = api.reset(&format!("/rate/reset/{id}")).await;
        assert_problem(&answer, 404, id);
    }
}

#[tokio::test]
async fn who_is_no_admin_does_not_learn_which_ids_there_can_be() {
    let api = Api::start();
    for id in NO_USER_IDS.into_iter().chain(["%FF", "7"]) {
        let path = format!("/rate/reset/{id}");
        assert_problem(&send(api.delete(&path)).await, 403, id);
        let wrong = api.delete(&path).header("X-Admin-Key", "open barley");
        assert_problem(&send(wrong).await, 403, id);
    }
}

#[tokio::test]
async fn only_the_whole_admin_key_resets() {
    let api = Api::start();
    api.use_up("7", "/search", 1).await;
    assert_problem(&send(api.delete("/rate/reset/7")).await, 403, "no key");
    let wrong = [
        ("empty", ""),
        ("wrong", "open barley"),
        ("a beginning", "open"),
        ("longer", "open sesame!"),
        ("another case", "Open Sesame"),
        ("not ASCII", "ÿ"),
    ];
    for (case, key) in wrong {
        for path in ["/rate/reset/7", "/rate/reset/7?endpoint=/search"] {
            let request = api.delete(path).header("X-Admin-Key", key);
            assert_problem(&send(request).await, 403, case);
        }
    }
    let twice = api.delete("/rate/reset/7").header("X-Admin-Key", SECRET);
    let twice = twice.header("X-Admin-Key", "open barley");
    assert_problem(&send(twice).await, 403, "two keys");
    assert_eq!(api.count("7", "/search").await, 1);
}

#[tokio::test]
async fn without_an_admin_key_on_the_server_nobody_is_admin() {
    for variables in [&[][..], &[("ADMIN_KEY", "")]] {
        let api = Api::start_with(variables);
        api.use_up("7", "/search", 1).await;
        assert_problem(&send(api.delete("/rate/reset/7")).await, 403, "no key");
        for key in ["", "any", SECRET] {
            let request = api.delete("/rate/reset/7").header("X-Admin-Key", key);
            assert_problem(&send(request).await, 403, key);
        }
        assert_eq!(api.count("7", "/search").await, 1);
    }
}

#[tokio::test]
async fn a_check_needs_a_body_that_is_json() {
    let api = Api::start();
    let bodies: [(&str, &[u8]); 9] = [
        ("empty", b""),
        ("a form", b"endpoint=/search"),
        ("cut off", b"{\"endpoint\":\"/search\""),
        ("more behind it", b"{\"endpoint\":\"/search\"} {}"),
        ("single quotes", b"{'endpoint':'/search'}"),
        ("not UTF-8", b"{\"endpoint\":\"\xff\"}"),
        ("half a surrogate pair", b"{\"endpoint\":\"\\ud800\"}"),
        ("not a number", b"{\"endpoint\":NaN}"),
        ("too deep", &[b'['; 10_000]),
    ];
    for (case, body) in bodies {
        let request = api.post(body.to_vec()).header("X-User-Id", "7");
        assert_problem(&send(request).await, 400, case);
    }
    let none = api.request(Method::POST, "/rate/check");
    assert_problem(&send(none.header("X-User-Id", "7")).await, 400, "none");
}

#[tokio::test]
async fn a_check_needs_an_endpoint_in_its_body() {
    let api = Api::start();
    let bodies = [
        "[]",
        "[\"endpoint\"]",
        "\"x\"",
        "null",
        "7",
        "{}",
        "{\"Endpoint\":\"/search\"}",
        "{\"endpoint\":null}",
        "{\"endpoint\":7}",
        "{\"endpoint\":true}",
        "{\"endpoint\":[\"/search\"]}",
        "{\"endpoint\":{\"endpoint\":\"/search\"}}",
    ];
    for body in bodies {
        let request = api.post(body).header("X-User-Id", "7");
        assert_problem(&send(request).await, 422, body);
    }
    for (case, endpoint) in no_endpoints() {
        assert_problem(&api.check("7", &endpoint).await, 422, case);
    }
}

#[tokio::test]
async fn a_status_needs_one_endpoint_in_its_query() {
    let api = Api::start();
    for query in ["", "?", "?endpoint", "?x=1", "?endpoint=/a&endpoint=/b"] {
        let request = api.get(&format!("/rate/status{query}"));
        assert_problem(&send(request.header("X-User-Id", "7")).await, 422, query);
    }
    for (case, endpoint) in no_endpoints() {
        assert_problem(&api.status("7", &endpoint).await, 422, case);
    }
}

#[tokio::test]
async fn a_reset_whose_endpoint_is_none_resets_nothing() {
    let api = Api::start();
    api.use_up("7", "/search", 1).await;
    for query in ["endpoint", "endpont=/search", "endpoint=/a&endpoint=/b"] {
        let answer = api.reset(&format!("/rate/reset/7?{query}")).await;
        assert_problem(&answer, 422, query);
    }
    for (case, endpoint) in no_endpoints() {
        let answer = api.reset(&with_endpoint("/rate/reset/7", &endpoint)).await;
        assert_problem(&answer, 422, case);
    }
    assert_eq!(api.count("7", "/search").await, 1);
}

#[tokio::test]
async fn what_is_not_there_is_a_problem_document_too() {
    let api = Api::start();
    for path in ["/", "/rate", "/rate/check/", "/rate/reset", "/%FF"] {
        assert_problem(&send(api.get(path)).await, 404, path);
    }
    let methods = [
        (Method::GET, "/rate/check", "POST"),
        (Method::POST, "/rate/status", "GET,HEAD"),
        (Method::GET, "/rate/reset/7", "DELETE"),
    ];
    for (method, path, allowed) in methods {
        let answer = send(api.request(method, path)).await;
        assert_problem(&answer, 405, path);
        assert_eq!(answer.only("allow"), allowed);
    }
}

#[tokio::test]
async fn a_body_that_is_too_long_is_a_problem_document_too() {
    let api = Api::start();
    // So little over the limit that all of it is read: a connection that closes earlier may lose the answer.
    let body = format!("{{\"endpoint\":\"{}\"}}", "x".repeat(2 << 20));
    let request = api.post(body).header("X-User-Id", "7");
    assert_problem(&send(request).await, 413, "over 2 MiB");
}

#[tokio::test]
async fn a_locked_database_is_counted_beside_until_it_is_free_but_not_reset() {
    let api = Api::start();
    api.use_up("7", "/search", 1).await;
    let mut other = api.database().await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let checked = api.check("7", "/search").await;
    assert_eq!(
        (checked.status, &checked.json()["remaining"]),
        (200, &9.into())
    );
    assert_eq!(api.count("7", "/search").await, 1);
    let refused = api.reset("/rate/reset/7").await;
    assert_problem(&refused, 503, "locked");
    assert_eq!(refused.only("retry-after"), "5");
    other.execute("ROLLBACK").await.unwrap();
    api.use_up("7", "/search", 1).await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_service_manager_ends_it_cleanly() {
    let mut api = Api::start();
    api.use_up("7", "/search", 1).await;
    assert!(api.server.terminate().success());
}
