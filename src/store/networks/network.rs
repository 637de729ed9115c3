//! A network that is slow, holds back what it carries, or leads to another server.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// Where a server listens.
#[derive(Clone)]
pub(in crate::store) enum Place {
    Port(u16),
    Socket(PathBuf),
}

/// What does not pass for now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Held {
    Nothing,
    Answers,
    All,
}

/// A way to a server, for connections to a port of its own.
pub(in crate::store) struct Network {
    port: u16,
    held: watch::Sender<Held>,
    leads_to: watch::Sender<Place>,
    connections: Arc<AtomicU64>,
}

impl Network {
    pub(in crate::store) async fn before(server: Place) -> Self {
        Self::slow(server, Duration::ZERO).await
    }

    /// One on which every byte takes so long, each way.
    pub(in crate::store) async fn slow(server: Place, latency: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (held, what_is_held) = watch::channel(Held::Nothing);
        let (leads_to, place) = watch::channel(server);
        let connections = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                client.set_nodelay(true).unwrap();
                let (asks, answers_to) = client.into_split();
                let place = place.borrow().clone();
                // Who finds no server finds his connection closed.
                let Some((answers, asks_to)) = connect(&place).await else {
                    continue;
                };
                let held = || what_is_held.clone();
                let (asks, is_held) = (Box::new(asks), |held: Held| held == Held::All);
                tokio::spawn(carry(asks, asks_to, latency, held(), is_held));
                let (to, is_held) = (Box::new(answers_to), |held: Held| held != Held::Nothing);
                tokio::spawn(carry(answers, to, latency, held(), is_held));
            }
        });
        Self {
            port,
            held,
            leads_to,
            connections,
        }
    }

    pub(in crate::store) fn port(&self) -> u16 {
        self.port
    }

    /// How many connections came.
    pub(in crate::store) fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }

    /// Holds back what comes from here on, or lets it and all that was held back pass.
    pub(in crate::store) fn hold(&self, held: Held) {
        self.held.send_replace(held);
    }

    /// Has new connections lead to another server.
    pub(in crate::store) fn lead_to(&self, server: Place) {
        self.leads_to.send_replace(server);
    }
}

type Source = Box<dyn AsyncRead + Send + Unpin>;
type Sink = Box<dyn AsyncWrite + Send + Unpin>;

async fn connect(place: &Place) -> Option<(Source, Sink)> {
    match place {
        Place::Port(port) => {
            let stream = TcpStream::connect(("127.0.0.1", *port)).await.ok()?;
            stream.set_nodelay(true).ok()?;
            let (from, to) = stream.into_split();
            Some((Box::new(from), Box::new(to)))
        }
        Place::Socket(path) => {
            let (from, to) = UnixStream::connect(path).await.ok()?.into_split();
            Some((Box::new(from), Box::new(to)))
        }
    }
}

/// Carries bytes one way until either end is gone. What is slow is the way, not the pace: more follows what is under way.
async fn carry(
    mut from: Source,
    mut to: Sink,
    latency: Duration,
    mut held: watch::Receiver<Held>,
    is_held: fn(Held) -> bool,
) {
    let (sender, mut under_way) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        while let Some((arrives_at, bytes)) = under_way.recv().await {
            sleep_until(arrives_at).await;
            if held.wait_for(|held| !is_held(*held)).await.is_err()
                || to.write_all(&bytes).await.is_err()
            {
                break;
            }
        }
    });
    let mut buffer = vec![0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        #[expect(
            clippy::disallowed_methods,
            reason = "a slow network is what is tested"
        )]
        let now = Instant::now();
        if sender
            .send((now + latency, buffer[..length].to_vec()))
            .is_err()
        {
            break;
        }
    }
}
