//! What recording costs the requests: a layer with it and without, beside each other.

use std::convert::Infallible;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use http::{HeaderValue, Request, Response};
use tollgate::{RateLimitLayer, SqliteStore, key};
use tower::{Layer, Service, ServiceExt};

use crate::Effort;
use crate::contestant::{LIMIT, WINDOW_SECONDS};
use crate::keys::{HEADER, Keys, Picker};
use crate::measured::Measured;
use crate::report::{self, Ratio, Row, Wording};
use crate::turn::{self, Asker};

const WARM_UP_SECONDS: f64 = 0.3;
const WORDING: Wording = Wording {
    rate: "requests/s",
    cpu: "process us",
    has_loader: false,
};
const ENTRANTS: [(Keys, bool); 4] = [
    (Keys::One, false),
    (Keys::One, true),
    (Keys::Many, false),
    (Keys::Many, true),
];
const RATIOS: [Ratio; 2] = [ratio(1, 0), ratio(3, 2)];

const fn ratio(of: usize, to: usize) -> Ratio {
    let target = None;
    Ratio { of, to, target }
}

pub(super) async fn run(directory: &Path, effort: Effort) -> Result<String> {
    let mut stores = Vec::new();
    for index in 0..ENTRANTS.len() {
        stores.push(SqliteStore::open(directory.join(format!("requests-{index}.db"))).await?);
    }
    let mut rows = ENTRANTS.map(|(keys, is_recorded)| Row {
        label: format!(
            "{}, {} tasks, {}",
            keys.label(),
            effort.connections,
            if is_recorded {
                "recorded"
            } else {
                "not recorded"
            }
        ),
        turns: Vec::new(),
    });
    for (index, store) in stores.iter().enumerate() {
        load(store, index, effort.connections, WARM_UP_SECONDS).await?;
    }
    for round in 0..effort.rounds {
        eprintln!("round {} of {}", round + 1, effort.rounds);
        let mut order: Vec<_> = (0..ENTRANTS.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let turn = load(&stores[index], index, effort.connections, effort.seconds).await?;
            rows[index].turns.push(turn);
        }
    }
    let mut text = format!(
        "Requests through a layer around a service that answers at once, without HTTP\n{}\n\n{}",
        report::table(&rows, WORDING),
        report::ratios(&rows, &RATIOS)
    );
    for (index, (keys, is_recorded)) in ENTRANTS.iter().enumerate() {
        let store = &stores[index];
        store.close().await?;
        if *is_recorded {
            let label = keys.label();
            let _ = write!(text, "\n{label}: {} dropped", store.audit_dropped());
        }
    }
    Ok(text)
}

async fn load(store: &SqliteStore, index: usize, tasks: usize, seconds: f64) -> Result<Measured> {
    let (keys, is_recorded) = ENTRANTS[index];
    let layer = RateLimitLayer::fixed(LIMIT, WINDOW_SECONDS)
        .name("bench")
        .key(key::header(HEADER))
        .store(store);
    let layer = if is_recorded {
        layer.audit(store)
    } else {
        layer
    };
    let values = keys.values().into_iter();
    let values: Arc<[_]> = values
        .map(HeaderValue::try_from)
        .collect::<Result<_, _>>()?;
    let service = layer.layer(tower::service_fn(answer));
    let asker = |task| Requester {
        service: service.clone(),
        picker: Picker::new(task, values.len()),
        values: Arc::clone(&values),
    };
    turn::take((0..tasks).map(asker).collect(), seconds).await
}

async fn answer(_: Request<()>) -> Result<Response<String>, Infallible> {
    Ok(Response::default())
}

struct Requester<S> {
    service: S,
    picker: Picker,
    values: Arc<[HeaderValue]>,
}

impl<S, B> Asker for Requester<S>
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible, Future: Send>
        + Send
        + 'static,
    B: Send,
{
    async fn ask(&mut self) -> Result<bool> {
        let mut request = Request::new(());
        let value = self.values[self.picker.pick()].clone();
        request.headers_mut().insert(HEADER, value);
        let response = self.service.ready().await?.call(request).await?;
        Ok(response.status() == 200)
    }
}
