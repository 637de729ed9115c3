//! Upgrades to WebSocket, with a real server and a real client.

use axum::Router;
use axum::extract::WebSocketUpgrade;
use axum::extract::ws::WebSocket;
use axum::response::Response;
use axum::routing::any;
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use tollgate::{Key, RateLimitLayer};

use crate::support::{CLIENT, login_in_memory, serve};

/// Says back what it gets.
async fn echo(upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(|mut socket: WebSocket| async move {
        while let Some(Ok(message)) = socket.recv().await {
            if socket.send(message).await.is_err() {
                break;
            }
        }
    })
}

/// The URL of a server whose upgrades go through the layer.
async fn url_of(limit: RateLimitLayer) -> String {
    let router = Router::new().route("/", any(echo)).layer(limit);
    format!("ws://{}/", serve(router).await)
}

async fn connect(url: &str) -> Result<WebSocketStream<MaybeTlsStream<TcpStream>>, Error> {
    let mut request = url.into_client_request()?;
    request
        .headers_mut()
        .insert(CLIENT, "alice".parse().unwrap());
    Ok(connect_async(request).await?.0)
}

#[tokio::test]
async fn an_upgrade_counts_once_and_messages_do_not() {
    let limit = login_in_memory(5, 60);
    let limiter = limit.limiter();
    let mut socket = connect(&url_of(limit).await).await.unwrap();
    for _ in 0..20 {
        socket.send(Message::text("hello")).await.unwrap();
        let echoed = socket.next().await.unwrap().unwrap();
        assert_eq!(echoed, Message::text("hello"));
    }
    let alice = "header/x-client-key:alice".parse::<Key>().unwrap();
    assert_eq!(limiter.peek(&alice).await.unwrap().used(), 1);
}

#[tokio::test]
async fn a_refused_upgrade_gets_the_429_and_an_open_socket_goes_on() {
    let url = url_of(login_in_memory(1, 60)).await;
    let mut open = connect(&url).await.unwrap();
    let Err(Error::Http(refused)) = connect(&url).await else {
        panic!("the second upgrade passed, or failed otherwise");
    };
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "60");
    assert_eq!(
        refused.headers()["content-type"],
        "application/problem+json"
    );
    assert!(!refused.headers().contains_key("sec-websocket-accept"));
    open.send(Message::text("hello")).await.unwrap();
    assert_eq!(open.next().await.unwrap().unwrap(), Message::text("hello"));
    open.close(None).await.unwrap();
}
