//! What the tests share: clocks, stores, requests, answers, servers.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt::Debug;
use std::future::Ready;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Once;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate::{ManualClock, MemoryStore, RateLimitLayer, SqliteStore, Store, Timestamp, key};
use tower::{Service, ServiceExt};

use crate::processes::example;

/// The start of a window of 1 s, 7 s, 60 s, 900 s and 3,600 s: 2083-01-15T04:00:00Z.
pub(crate) const START: Timestamp = Timestamp::from_unix_millis(3_567_211_200_000);
/// The header that the tests key on.
pub(crate) const CLIENT: &str = "x-client-key";
/// The longest window: nothing that runs on the real clock crosses a boundary of it.
pub(crate) const LONG: u64 = 10 * 366 * 86_400;

pub(crate) fn clock() -> ManualClock {
    ManualClock::new(START)
}

pub(crate) fn memory(clock: &ManualClock) -> MemoryStore {
    MemoryStore::new().clock(clock)
}

/// A busy machine must not fail a test: the deadline is far away.
pub(crate) fn sqlite(clock: &ManualClock) -> SqliteStore {
    SqliteStore::in_memory()
        .deadline(Duration::from_mins(1))
        .clock(clock)
}

/// A policy `login` on the store, keyed by [`CLIENT`].
pub(crate) fn login(limit: u32, seconds: u64, store: &impl Store) -> RateLimitLayer {
    RateLimitLayer::fixed(limit, seconds)
        .name("login")
        .key(key::header(CLIENT))
        .store(store)
}

/// A policy on a store of its own whose clock stands still.
pub(crate) fn login_in_memory(limit: u32, seconds: u64) -> RateLimitLayer {
    login(limit, seconds, &memory(&clock()))
}

/// A service that says hello.
pub(crate) fn hello<B>()
-> impl Service<Request<B>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static
where
    B: 'static,
{
    tower::service_fn(|_: Request<B>| respond("hello"))
}

fn respond(body: &'static str) -> Ready<Result<Response<Full<Bytes>>, Infallible>> {
    std::future::ready(Ok(Response::new(Full::from(body))))
}

/// `GET /` by this client.
pub(crate) fn from(client: impl AsRef<[u8]>) -> Request<Body> {
    let client = HeaderValue::from_bytes(client.as_ref()).unwrap();
    let mut request = Request::new(Body::empty());
    request.headers_mut().insert(CLIENT, client);
    request
}

pub(crate) fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) extensions: Extensions,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) async fn read<B>(response: Response<B>) -> Self
    where
        B: http_body::Body,
        B::Error: Debug,
    {
        let (parts, body) = response.into_parts();
        Self {
            status: parts.status.as_u16(),
            headers: parts.headers,
            extensions: parts.extensions,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    /// Limit, remaining and reset, as `X-RateLimit-*` have them.
    pub(crate) fn x_fields(&self) -> [&str; 3] {
        [
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
        ]
        .map(|name| self.only(name))
    }

    /// All lines of a header, joined as a list; empty when there is none.
    pub(crate) fn header(&self, name: &str) -> String {
        let lines: Vec<_> = self
            .headers
            .get_all(name)
            .iter()
            .map(|line| line.to_str().unwrap())
            .collect();
        lines.join(", ")
    }

    /// The only line of a header.
    pub(crate) fn only(&self, name: &str) -> &str {
        assert_eq!(self.headers.get_all(name).iter().count(), 1, "{name}");
        self.headers[name].to_str().unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap()
    }
}

/// Sends one request through a clone of the service.
pub(crate) async fn send<S, R, B>(service: &S, request: Request<R>) -> Answer
where
    S: Service<Request<R>, Response = Response<B>> + Clone,
    S::Error: Debug,
    B: http_body::Body,
    B::Error: Debug,
{
    let response = service.clone().oneshot(request).await.unwrap();
    Answer::read(response).await
}

/// The statuses of as many requests of one client, one after another.
pub(crate) async fn statuses<S, B>(service: &S, client: &str, count: usize) -> Vec<u16>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone,
    S::Error: Debug,
    B: http_body::Body,
    B::Error: Debug,
{
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(send(service, from(client)).await.status);
    }
    statuses
}

/// Serves the router on a free port, the peer's address made known. It ends with the test's runtime.
pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

/// Sends a request's bytes, and returns the bytes that come back until the server closes.
pub(crate) async fn on_the_wire(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A running example, on a database of its own.
pub(crate) struct Server {
    pub(crate) url: String,
    command: Command,
    child: Child,
    /// What it prints behind its first line.
    lines: Receiver<String>,
    folder: TempDir,
}

impl Server {
    pub(crate) fn start(name: &str) -> Self {
        Self::start_with(name, &[])
    }

    /// Starts it with these variables in its environment.
    pub(crate) fn start_with(name: &str, variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = format!("sqlite://{}", database(&folder).display());
        let mut command = Command::new(example(name));
        command
            .env("ADDR", "127.0.0.1:0")
            .env("DATABASE_URL", database)
            .env_remove("ADMIN_KEY")
            .envs(variables.iter().copied())
            .stdout(Stdio::piped());
        let (child, url, lines) = listening(&mut command);
        Self {
            url,
            command,
            child,
            lines,
            folder,
        }
    }

    /// Kills it, and starts it anew on the same database.
    pub(crate) fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        (self.child, self.url, self.lines) = listening(&mut self.command);
    }

    /// The rest of the next line that it prints with this beginning.
    pub(crate) fn line(&self, start: &str) -> String {
        let mut lines = self.lines.iter();
        let line = lines.find_map(|line| line.strip_prefix(start).map(str::to_owned));
        line.unwrap_or_else(|| panic!("it has ended without a line that begins with {start}"))
    }

    /// Ends it as a service manager does.
    #[cfg(unix)]
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.ask_to_end();
        self.child.wait().unwrap()
    }

    /// Sends it what a service manager sends.
    #[cfg(unix)]
    pub(crate) fn ask_to_end(&self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.unwrap().success());
    }

    pub(crate) fn database(&self) -> PathBuf {
        database(&self.folder)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn database(folder: &TempDir) -> PathBuf {
    folder.path().join("limits.db")
}

/// Starts an example, and waits until it says where it listens.
fn listening(command: &mut Command) -> (Child, String, Receiver<String>) {
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let address = line.strip_prefix("listening on ").unwrap();
    let url = address.split([',', ';']).next().unwrap().to_owned();
    let (told, later) = mpsc::channel();
    // Its later lines must not fill the pipe, whether anybody reads them or not.
    std::thread::spawn(move || {
        lines
            .map_while(Result::ok)
            .for_each(|line| drop(told.send(line)));
    });
    (child, url, later)
}

thread_local! {
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Collects what is logged on this thread, from now on. Other tests run on other threads.
pub(crate) fn capture_log() -> Log {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .without_time()
            .with_writer(|| ThreadLog)
            .finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
    LOG.with_borrow_mut(Vec::clear);
    Log
}

pub(crate) struct Log;

impl Log {
    /// The library's own lines that hold this text.
    #[expect(clippy::unused_self, reason = "only what was captured can be read")]
    pub(crate) fn lines_with(&self, text: &str) -> Vec<String> {
        let log = LOG.with_borrow(|log| String::from_utf8(log.clone()).unwrap());
        let is_wanted = |line: &&str| {
            (line.contains(" tollgate::") || line.contains(" tollgate: ")) && line.contains(text)
        };
        log.lines().filter(is_wanted).map(str::to_owned).collect()
    }
}

struct ThreadLog;

impl io::Write for ThreadLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
