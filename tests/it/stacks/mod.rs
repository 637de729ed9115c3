//! The layers that users stack around a limit, on real servers: what `docs/layers.md` says of them.

mod authentication;
mod browsers;
mod errors;
mod inside_and_around;
mod observers;
mod routers;

use std::net::SocketAddr;

use reqwest::{Client, RequestBuilder, Response};

use crate::support::CLIENT;

fn client() -> Client {
    Client::builder().no_proxy().build().unwrap()
}

/// `GET /` by alice.
fn get(server: SocketAddr) -> RequestBuilder {
    client()
        .get(format!("http://{server}/"))
        .header(CLIENT, "alice")
}

async fn answer(request: RequestBuilder) -> Response {
    request.send().await.unwrap()
}

/// The statuses of as many requests, one after another.
async fn statuses(request: impl Fn() -> RequestBuilder, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(answer(request()).await.status().as_u16());
    }
    statuses
}
