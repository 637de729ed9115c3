//! A limit in front of a plain hyper service, without a framework: 3 requests per 60 seconds for each address.
//!
//! Whoever accepts the connection knows the peer, and puts its address into each request as a `PeerAddr`.
//!
//! Environment: `ADDR` (default `127.0.0.1:3000`).

use std::convert::Infallible;
use std::env;
use std::error::Error;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tollgate::RateLimitLayer;
use tollgate::key::PeerAddr;
use tower::{ServiceBuilder, service_fn};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let limit = RateLimitLayer::fixed(3, 60);

    let listener = TcpListener::bind(&address).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}; try:");
    println!("  curl -i http://{address}/");
    loop {
        let (stream, peer) = listener.accept().await?;
        let service = ServiceBuilder::new()
            .map_request(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(PeerAddr(peer));
                request
            })
            // A clone for each connection: they share their counters.
            .layer(limit.clone())
            .service(service_fn(hello));
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
            if let Err(error) = connection.await {
                eprintln!("the connection of {peer} ended: {error}");
            }
        });
    }
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello\n")))
}
