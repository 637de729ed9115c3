//! A network that holds answers back.

use std::path::PathBuf;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::*;

/// Stands between a store and a server, and lets answers pass while its gate is open.
pub(super) struct Network {
    folder: tempfile::TempDir,
    gate: watch::Sender<bool>,
    leads_to: watch::Sender<PathBuf>,
}

impl Network {
    pub(super) fn before(server: &RedisServer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let (gate, is_open) = watch::channel(true);
        let (leads_to, to) = watch::channel(socket_of(server));
        tokio::spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                let to = to.borrow().clone();
                // Who finds no server finds his connection closed.
                if let Ok(to) = UnixStream::connect(&to).await {
                    tokio::spawn(connect(from, to, is_open.clone()));
                }
            }
        });
        Self {
            folder,
            gate,
            leads_to,
        }
    }

    /// Has new connections lead to another server.
    pub(super) fn lead_to(&self, server: &RedisServer) {
        self.leads_to.send_replace(socket_of(server));
    }

    pub(super) fn url(&self) -> String {
        format!("unix://{}", self.folder.path().join("socket").display())
    }
}

fn socket_of(server: &RedisServer) -> PathBuf {
    PathBuf::from(server.url().strip_prefix("unix://").unwrap())
}

async fn connect(from: UnixStream, to: UnixStream, mut is_open: watch::Receiver<bool>) {
    let (mut asks, mut answers_to) = from.into_split();
    let (mut answers, mut asks_to) = to.into_split();
    tokio::spawn(async move {
        let _ = copy(&mut asks, &mut asks_to).await;
    });
    let mut buffer = vec![0; 65_536];
    while let Ok(length @ 1..) = answers.read(&mut buffer).await {
        if is_open.wait_for(|is_open| *is_open).await.is_err()
            || answers_to.write_all(&buffer[..length]).await.is_err()
        {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_too_late_is_nobodys() {
    let server = RedisServer::start("");
    let network = Network::before(&server);
    let store = RedisStore::connect(&network.url()).await.unwrap();
    let store = store.deadline(Duration::from_millis(50));
    let [one, other] = ["one", "other"].map(|name| Policy::daily(100).name(name).leases(false));
    let (mut admitted, mut errors) = (0, 0);
    for round in 0..3 {
        // What a busy machine makes late is no matter here.
        admitted += u64::from(charge_patiently(&store, &one).await.0.is_admitted());
        network.gate.send_replace(false);
        let error = charge(&store, &one, 1).await.unwrap_err();
        assert!(matches!(error, StoreError::DeadlineExceeded), "{error:?}");
        errors += 1;
        if round == 1 {
            // Until the call is given up, and the connection with it.
            while !matches!(
                charge(&store, &other, 1).await,
                Err(StoreError::BreakerOpen)
            ) {
                tokio::task::yield_now().await;
            }
        }
        network.gate.send_replace(true);
        let (outcome, failed) = charge_patiently(&store, &other).await;
        let used = outcome.found.first().state.used(&other, outcome.at);
        // Each is told of its own counter.
        assert!(outcome.is_admitted() && used > round && used <= 100);
        errors += failed as u64;
    }
    let store = store.deadline(PATIENCE);
    let used = used(&store, &one).await;
    assert!(
        (admitted..=admitted + errors + 300).contains(&used),
        "{used}"
    );
    assert!(used <= 100);
}
