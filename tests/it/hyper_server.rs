//! A plain hyper server: no framework, one service per connection.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tollgate::key::PeerAddr;
use tollgate::{Key, RateLimitLayer};
use tower::{Layer, Service, ServiceBuilder};

use crate::support::{LONG, clock, hello, memory, on_the_wire};

/// Serves clones of the service, one for each connection, the peer's address made known.
pub(crate) async fn serve_hyper<S, B>(service: S) -> SocketAddr
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
    B: http_body::Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let service = ServiceBuilder::new()
                .map_request(move |mut request: Request<Incoming>| {
                    request.extensions_mut().insert(PeerAddr(peer));
                    request
                })
                .service(service.clone());
            let service = TowerToHyperService::new(service);
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection.with_upgrades());
        }
    });
    address
}

const GET_AND_CLOSE: &str = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

async fn get_status(address: SocketAddr) -> String {
    let answer = on_the_wire(address, GET_AND_CLOSE).await;
    answer.lines().next().unwrap().to_owned()
}

#[tokio::test]
async fn the_one_liner_limits_a_plain_hyper_service() {
    let address = serve_hyper(RateLimitLayer::fixed(2, LONG).layer(hello())).await;
    assert_eq!(get_status(address).await, "HTTP/1.1 200 OK");
    assert_eq!(get_status(address).await, "HTTP/1.1 200 OK");
    assert_eq!(get_status(address).await, "HTTP/1.1 429 Too Many Requests");
}

#[tokio::test]
async fn connections_share_one_counter() {
    let layer = RateLimitLayer::fixed(3, 60).store(&memory(&clock()));
    let address = serve_hyper(layer.layer(hello())).await;
    let two = format!("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n{GET_AND_CLOSE}");
    let first = on_the_wire(address, &two).await;
    assert_eq!(first.matches("HTTP/1.1 200 OK").count(), 2, "{first}");
    let second = on_the_wire(address, &two).await;
    assert_eq!(second.matches("HTTP/1.1 200 OK").count(), 1, "{second}");
    assert_eq!(
        second.matches("HTTP/1.1 429 Too Many Requests").count(),
        1,
        "{second}"
    );
}

#[tokio::test]
async fn without_the_peers_address_the_answer_says_how_to_make_it_known() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let layer = RateLimitLayer::fixed(3, 60).store(&memory(&clock()));
    let service = TowerToHyperService::new(layer.layer(hello()));
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await?;
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        connection.await.map_err(std::io::Error::other)
    });
    let answer = on_the_wire(address, GET_AND_CLOSE).await;
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    assert!(answer.contains("tollgate::key::PeerAddr"), "{answer}");
}

#[tokio::test]
async fn a_request_with_a_body_is_passed_on_and_refused() {
    let layer = RateLimitLayer::fixed(1, 60).store(&memory(&clock()));
    let address = serve_hyper(layer.layer(hello())).await;
    let post =
        "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
    for status in ["HTTP/1.1 200 OK", "HTTP/1.1 429 Too Many Requests"] {
        let answer = on_the_wire(address, post).await;
        assert!(answer.starts_with(status), "{answer}");
    }
}

#[tokio::test]
async fn a_refused_request_is_not_asked_to_send_its_body() {
    let layer = RateLimitLayer::fixed(0, 60).store(&memory(&clock()));
    let address = serve_hyper(layer.layer(hello())).await;
    let post = "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\
        expect: 100-continue\r\nconnection: close\r\n\r\n";
    let answer = on_the_wire(address, post).await;
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
}

#[tokio::test]
async fn an_upgrade_counts_once_and_a_refusal_comes_before_it() {
    let echo = tower::service_fn(|request: Request<Incoming>| async move {
        tokio::spawn(async move {
            let mut upgraded = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
            upgraded.write_all(b"upgraded").await.unwrap();
        });
        let response = Response::builder()
            .status(101)
            .header("connection", "upgrade")
            .header("upgrade", "echo")
            .body(Full::<Bytes>::default());
        Ok::<_, Infallible>(response.unwrap())
    });
    let layer = RateLimitLayer::fixed(1, 60).store(&memory(&clock()));
    let limiter = layer.limiter();
    let address = serve_hyper(layer.layer(echo)).await;
    let request =
        "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    let answer = on_the_wire(address, request).await;
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(answer.ends_with("\r\n\r\nupgraded"), "{answer}");
    let key = Key::ip("127.0.0.1".parse().unwrap());
    assert_eq!(limiter.peek(&key).await.unwrap().used(), 1);
    let refused = request.replace("upgrade\r\nupgrade: echo", "close");
    let answer = on_the_wire(address, &refused).await;
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
}
