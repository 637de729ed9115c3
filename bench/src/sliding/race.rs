//! How many pass when all tasks ask at once for a key that nobody has used.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::window::{self, Method, Window};

const LIMITS: [u32; 2] = [10, 100];
/// Each of them is raced for once.
const KEYS: usize = 20;

/// Races, and tells who let how many pass.
pub(super) async fn run(directory: &Path, pool: u32, tasks: usize) -> Result<String> {
    let mut text = format!(
        "{:50}  {:>5}  {:>15}  {:>10}  {:>13}",
        format!("{tasks} tasks at once until refused, {KEYS} new keys"),
        "limit",
        "admitted, median",
        "keys",
        "most over it"
    );
    let mut racers = vec![(Method::Tollgate, 0), (Method::Classic, pool)];
    if pool > 1 {
        // Not even this keeps others from counting between a count and its insert.
        racers.push((Method::Classic, 1));
    }
    for (method, pool) in racers {
        for limit in LIMITS {
            let database = directory.join(format!("race-{method:?}-{pool}-{limit}.db"));
            let window = Window::open(method, limit, &window::start(), &database, pool).await?;
            let mut admitted = Vec::new();
            for key in 0..KEYS {
                admitted.push(race(&window.of_key(&format!("race-{key}")), tasks).await?);
            }
            window.close().await?;
            admitted.sort_unstable();
            let (least, most) = (admitted[0], admitted[KEYS - 1]);
            let label = match method {
                Method::Tollgate => method.label().to_owned(),
                Method::Classic => format!("{}, pool of {pool}", method.label()),
            };
            let _ = write!(
                text,
                "\n{label:50}  {limit:>5}  {:>15}  {:>10}  {:>13}",
                admitted[KEYS / 2],
                format!("{least} to {most}"),
                i64::from(most) - i64::from(limit),
            );
        }
    }
    Ok(text)
}

/// Has all tasks ask until they are refused, and says how many were admitted. The clock stands still.
async fn race(window: &Window, tasks: usize) -> Result<u32> {
    let start = Arc::new(Barrier::new(tasks));
    let mut asking = JoinSet::new();
    for _ in 0..tasks {
        let (window, start) = (window.clone(), Arc::clone(&start));
        asking.spawn(async move {
            start.wait().await;
            let mut admitted = 0;
            while window.is_allowed().await? {
                admitted += 1;
            }
            Ok::<u32, anyhow::Error>(admitted)
        });
    }
    let mut admitted = 0;
    while let Some(task) = asking.join_next().await {
        admitted += task??;
    }
    Ok(admitted)
}
