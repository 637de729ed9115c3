//! Refusals of gRPC calls, as a tonic client sees them.

use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use futures_util::future::BoxFuture;
use futures_util::stream;
use http::uri::PathAndQuery;
use http_body::Body as _;
use tollgate::{FailureMode, Key, RateLimitLayer, Rejection, key};
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{CLIENT, clock, from, hello, login, login_in_memory, memory, send, sqlite};

/// Messages that are bytes.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// Says back what it gets: once (`Say`), or twice (`Repeat`).
#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut server = tonic::server::Grpc::new(Raw);
        let say = service_fn(async |request: Request<Bytes>| {
            Ok::<_, Status>(Response::new(request.into_inner()))
        });
        let repeat = service_fn(async |request: Request<Bytes>| {
            let message = request.into_inner();
            let twice = [Ok::<_, Status>(message.clone()), Ok(message)];
            Ok::<_, Status>(Response::new(stream::iter(twice)))
        });
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/test.Echo/Say" => server.unary(say, request).await,
                _ => server.server_streaming(repeat, request).await,
            })
        })
    }
}

/// A channel to a real server whose calls go through the layer.
async fn connect(limit: RateLimitLayer) -> Channel {
    let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = incoming.local_addr().unwrap();
    let server = Server::builder().layer(limit).add_service(Echo);
    tokio::spawn(server.serve_with_incoming(incoming));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    endpoint.connect().await.unwrap()
}

fn by(client: &'static str) -> Request<Bytes> {
    let mut request = Request::new(Bytes::from_static(b"hello"));
    request
        .metadata_mut()
        .insert(CLIENT, client.parse().unwrap());
    request
}

async fn say(channel: &Channel, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
    let mut client = Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/test.Echo/Say");
    client.unary(request, path, Raw).await
}

#[tokio::test]
async fn a_client_sees_resource_exhausted_the_message_and_the_wait() {
    let clock = clock();
    let channel = connect(login(1, 60, &memory(&clock))).await;
    clock.advance(Duration::from_millis(57_900));
    let passed = say(&channel, by("alice")).await.unwrap();
    assert_eq!(passed.get_ref(), "hello");
    assert_eq!(
        passed.metadata().get("ratelimit").unwrap(),
        "\"login\";r=0;t=3"
    );
    let refused = say(&channel, by("alice")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(
        refused.message(),
        "The policy login allows 1 request per 60 seconds."
    );
    let metadata = refused.metadata();
    assert_eq!(metadata.get("grpc-retry-pushback-ms").unwrap(), "2100");
    assert_eq!(metadata.get("retry-after").unwrap(), "3");
    assert_eq!(metadata.get("ratelimit").unwrap(), "\"login\";r=0;t=3");
    assert_eq!(
        metadata.get("ratelimit-policy").unwrap(),
        "\"login\";q=1;w=60"
    );
    assert_eq!(metadata.get("cache-control").unwrap(), "no-store");
    let wait = refused.get_details_retry_info().unwrap().retry_delay;
    assert_eq!(wait, Some(Duration::from_millis(2_100)));
}

#[tokio::test]
async fn the_wait_in_the_details_has_the_code_and_the_message_beside_it() {
    let channel = connect(login_in_memory(1, 60)).await;
    say(&channel, by("alice")).await.unwrap();
    let refused = say(&channel, by("alice")).await.unwrap_err();
    let details: tonic_types::Status = prost::Message::decode(refused.details()).unwrap();
    assert_eq!(details.code, 8);
    assert_eq!(details.message, refused.message());
}

#[tokio::test]
async fn a_streaming_call_is_refused_before_its_first_message() {
    let channel = connect(login_in_memory(1, 60)).await;
    let mut client = Grpc::new(channel);
    let path = PathAndQuery::from_static("/test.Echo/Repeat");
    client.ready().await.unwrap();
    let passed = client
        .server_streaming(by("alice"), path.clone(), Raw)
        .await;
    let mut messages = passed.unwrap().into_inner();
    for _ in 0..2 {
        assert_eq!(messages.message().await.unwrap().unwrap(), "hello");
    }
    assert_eq!(messages.message().await.unwrap(), None);
    client.ready().await.unwrap();
    let refused = client.server_streaming(by("alice"), path, Raw).await;
    assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn a_refusal_is_one_header_section_and_the_end_of_the_stream() {
    let mut channel = connect(login_in_memory(0, 60)).await;
    let request = http::Request::post("/test.Echo/Say")
        .header("content-type", "application/grpc+proto")
        .header(CLIENT, "alice")
        .body(Body::empty())
        .unwrap();
    let response = channel.ready().await.unwrap().call(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.body().is_end_stream());
    let headers = response.headers();
    assert_eq!(headers["content-type"], "application/grpc");
    assert_eq!(headers["grpc-status"], "8");
    assert!(!headers.contains_key("content-length"));
}

#[tokio::test]
async fn without_a_wait_that_helps_the_pushback_says_never() {
    let channel = connect(login_in_memory(0, 60)).await;
    let refused = say(&channel, by("alice")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let pushback = refused.metadata().get("grpc-retry-pushback-ms");
    assert_eq!(pushback.unwrap(), "-1");
    assert_eq!(refused.details(), b"");
}

#[tokio::test]
async fn the_told_wait_is_the_pushback_too() {
    let limit = login_in_memory(1, 86_400)
        .retry_after_max(Duration::from_secs(10))
        .jitter(Duration::from_secs(5));
    let channel = connect(limit).await;
    say(&channel, by("alice")).await.unwrap();
    for _ in 0..50 {
        let refused = say(&channel, by("alice")).await.unwrap_err();
        let number = |name: &str| -> u64 {
            let value = refused.metadata().get(name).unwrap();
            value.to_str().unwrap().parse().unwrap()
        };
        let pushback = number("grpc-retry-pushback-ms");
        assert!((10_000..=15_000).contains(&pushback), "{pushback}");
        assert_eq!(pushback.div_ceil(1_000), number("retry-after"));
        let wait = refused.get_details_retry_info().unwrap().retry_delay;
        assert_eq!(wait, Some(Duration::from_millis(pushback)));
    }
}

#[tokio::test]
async fn a_missing_key_is_invalid_argument_and_a_missing_set_up_internal() {
    let channel = connect(login_in_memory(1, 60)).await;
    let nobody = say(&channel, Request::new(Bytes::new())).await.unwrap_err();
    assert_eq!(nobody.code(), Code::InvalidArgument);
    assert!(nobody.message().contains(CLIENT), "{nobody}");
    let incomplete = login_in_memory(1, 60).key(key::extension(|id: &u64| *id));
    let refused = say(&connect(incomplete).await, by("alice"))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Internal);
    assert!(refused.message().ends_with("[no-extension]"), "{refused}");
}

#[tokio::test]
async fn a_failed_store_is_unavailable_for_a_while() {
    let store = sqlite(&clock());
    let limit = login(9, 60, &store).on_store_failure(FailureMode::Closed);
    let channel = connect(limit).await;
    store.close().await.unwrap();
    let refused = say(&channel, by("alice")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    let metadata = refused.metadata();
    assert_eq!(metadata.get("grpc-retry-pushback-ms").unwrap(), "5000");
    assert_eq!(metadata.get("retry-after").unwrap(), "5");
}

#[tokio::test]
async fn a_message_of_any_characters_arrives_as_it_is() {
    const TEXT: &str = "100 % of »alice«,\r\nno more\u{7f}";
    let problem = tollgate::Problem::default().detail(|_| TEXT.to_owned());
    let channel = connect(login_in_memory(1, 60).problem(problem)).await;
    say(&channel, by("alice")).await.unwrap();
    assert_eq!(
        say(&channel, by("alice")).await.unwrap_err().message(),
        TEXT
    );
}

#[tokio::test]
async fn an_answer_of_ones_own_goes_before_the_grpc_status() {
    let limit = login_in_memory(0, 60).rejection(|why, _| {
        let status = match why {
            Rejection::Denied(_) => "14",
            _ => return None,
        };
        let response = http::Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", status);
        response.body("").ok()
    });
    let channel = connect(limit).await;
    let refused = say(&channel, by("alice")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    let nobody = say(&channel, Request::new(Bytes::new())).await.unwrap_err();
    assert_eq!(nobody.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn grpc_web_gets_the_answers_of_http() {
    let service = login_in_memory(0, 60).layer(hello());
    let mut request = from("alice");
    let grpc_web = "application/grpc-web+proto".parse().unwrap();
    request.headers_mut().insert("content-type", grpc_web);
    let answer = send(&service, request).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.only("content-type"), "application/problem+json");
}

#[tokio::test]
async fn a_tonic_server_makes_the_peers_address_known() {
    let limit = login_in_memory(1, 60).key(key::peer_ip());
    let limiter = limit.limiter();
    let channel = connect(limit).await;
    say(&channel, by("alice")).await.unwrap();
    let refused = say(&channel, by("bob")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let peer = Key::ip("127.0.0.1".parse().unwrap());
    assert_eq!(limiter.peek(&peer).await.unwrap().used(), 1);
}

#[tokio::test]
async fn a_message_of_any_length_leaves_the_status_readable() {
    let long = "é".repeat(20_000);
    let expected = "é".repeat(512);
    let problem = tollgate::Problem::default().detail(move |_| long.clone());
    let channel = connect(login_in_memory(1, 60).problem(problem)).await;
    say(&channel, by("alice")).await.unwrap();
    let refused = say(&channel, by("alice")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), expected);
    assert!(refused.get_details_retry_info().is_some());
}

#[tokio::test]
async fn who_claims_to_be_grpc_over_http_1_gets_the_answers_of_http() {
    let service = login_in_memory(0, 60).layer(hello());
    let mut request = from("alice");
    let grpc = "application/grpc".parse().unwrap();
    request.headers_mut().insert("content-type", grpc);
    assert_eq!(request.version(), http::Version::HTTP_11);
    let answer = send(&service, request).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.only("content-type"), "application/problem+json");
}

/// A call that fails with this status before it has sent a message.
fn failing(
    code: Code,
) -> impl Service<
    http::Request<axum::body::Body>,
    Response = http::Response<Body>,
    Error = Infallible,
    Future: Send,
> + Clone {
    service_fn(move |_| {
        std::future::ready(Ok(Status::new(code, "as the test wants it").into_http()))
    })
}

#[tokio::test]
async fn a_call_that_fails_at_once_is_refunded_by_what_its_status_means() {
    let cases = [
        (Code::Unauthenticated, true),
        (Code::NotFound, false),
        (Code::Internal, false),
    ];
    for (code, is_refunded) in cases {
        let limit = login_in_memory(9, 60).refund_if(|status| status == 401);
        let answer = send(&limit.layer(failing(code)), from("alice")).await;
        assert_eq!(answer.status, 200);
        let left = if is_refunded { "r=9;" } else { "r=8;" };
        assert!(answer.header("ratelimit").contains(left), "{code}");
    }
}

#[tokio::test]
async fn a_call_that_a_limit_further_inside_refuses_is_no_success() {
    let outer = login_in_memory(9, 60).refund_if(|status| status.is_success());
    let inner = RateLimitLayer::fixed(0, 60)
        .name("inner")
        .key(key::header(CLIENT));
    let service = outer.layer(inner.store(&memory(&clock())).layer(hello()));
    let mut request = from("alice");
    *request.version_mut() = http::Version::HTTP_2;
    let grpc = "application/grpc".parse().unwrap();
    request.headers_mut().insert("content-type", grpc);
    let answer = send(&service, request).await;
    assert_eq!((answer.status, answer.only("grpc-status")), (200, "8"));
    assert!(answer.header("ratelimit").contains("\"login\";r=8;"));
}
