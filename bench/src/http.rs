//! The benchmark over HTTP: a server process for each contestant, loaded one after the other from another process.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;

use crate::child::Servers;
use crate::contest::{self, Entrant, GOVERNOR, NONE};
use crate::contestant::{Contestant, Quota};
use crate::keys::Keys;
use crate::load::Load;
use crate::redis::Redis;
use crate::report::{self, Row, Wording, median};
use crate::results::{self, Results};
use crate::server::{SetUp, WORKERS};
use crate::{Effort, environment, pool};

/// At most so long each turn is led in.
const LEAD_IN_SECONDS: f64 = 1.0;
/// For each size of the pool that is tried.
const TRIAL_SECONDS: f64 = 1.0;
const TRIAL_LEAD_IN_SECONDS: f64 = 0.3;
/// How much faster the server without a limiter must be, or the loader is what was measured: a decision of
/// `tower_governor` is some hundredths of what a request costs here, client included.
const VISIBLY_AHEAD: f64 = 1.02;

pub(crate) const WORDING: Wording = Wording {
    rate: "req/s",
    cpu: "server us",
    has_loader: true,
};

/// Measures, and prints what was found.
pub(crate) fn run(effort: Effort, quota: Quota) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let environment = environment::of_run()?;
    println!("{environment}");
    let (pool, trial) = best_pool(directory.path(), effort.connections)?;
    let entrants = contest::entrants(quota, has_redis());
    let servers = start(&entrants, directory.path(), pool, quota)?;
    let mut settings = vec![
        format!(
            "{} keep-alive connections, one request under way on each, from one thread of another process",
            effort.connections
        ),
        format!(
            "{} interleaved rounds of {} s each, after {} s of the same load; axum on {WORKERS} workers; \
             databases in the temporary folder",
            effort.rounds,
            effort.seconds,
            lead_in(effort.seconds),
        ),
        trial,
    ];
    settings.extend(set_ups(
        entrants
            .iter()
            .map(|(contestant, _)| *contestant)
            .zip(&servers),
    ));
    println!("{}", settings.join("\n"));

    let rows = take_turns(&entrants, &servers, effort, quota)?;
    let comparisons = contest::comparisons(quota, &entrants);
    println!("\n{}", report::table(&rows, WORDING));
    for by in &comparisons {
        let ratios = report::ratios_by(by.figure, &rows, &by.ratios);
        println!("\n{ratios}");
    }
    let remarks = vec![judge_loader(&entrants, &rows)];
    println!("\n{}", remarks.join("\n"));
    if effort.save {
        let results = Results {
            environment,
            settings,
            rows,
            comparisons,
            remarks,
            wholes: Vec::new(),
        };
        results::save(quota.command(), &results)?;
    }
    Ok(())
}

/// Says so when there is none.
pub(crate) fn has_redis() -> bool {
    let is_there = Redis::is_there();
    if !is_there {
        println!("redis-server is not here, and left out: install it to see it beside the others");
    }
    is_there
}

/// Starts the servers. They are all there all the time; only one has work.
fn start(entrants: &[Entrant], directory: &Path, pool: u32, quota: Quota) -> Result<Vec<Servers>> {
    let server = |(index, (contestant, keys)): (usize, &Entrant)| {
        let set_up = SetUp {
            database: directory.join(format!("{index}.db")),
            pool,
            quota,
            filled: keys.count(),
            redis: None,
        };
        Servers::start(*contestant, set_up)
    };
    entrants.iter().enumerate().map(server).collect()
}

fn take_turns(
    entrants: &[Entrant],
    servers: &[Servers],
    effort: Effort,
    quota: Quota,
) -> Result<Vec<Row>> {
    let row = |entrant: &Entrant| Row {
        label: contest::label(*entrant),
        turns: Vec::new(),
    };
    let mut rows: Vec<_> = entrants.iter().map(row).collect();
    for round in 0..effort.rounds {
        eprintln!("round {} of {}", round + 1, effort.rounds);
        for index in in_turn(round, entrants.len()) {
            let (contestant, keys) = entrants[index];
            let load = Load {
                keys: keys.count(),
                connections: effort.connections,
                lead_in: lead_in(effort.seconds),
                seconds: effort.seconds,
                expected: contestant.expected_status(quota),
            };
            rows[index].turns.push(servers[index].load(load)?);
        }
    }
    Ok(rows)
}

/// How long the same load goes on before a turn of so many seconds: what goes back or cools down while the others have their
/// turns is there again then.
pub(crate) fn lead_in(seconds: f64) -> f64 {
    seconds.min(LEAD_IN_SECONDS)
}

/// The order of a round: forth and back, so that what changes slowly favours nobody.
pub(crate) fn in_turn(round: usize, count: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..count).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Finds the size of the pool with which the upsert is fastest, and tells what was tried.
pub(crate) fn best_pool(directory: &Path, connections: usize) -> Result<(u32, String)> {
    let mut best = (0, 0.0);
    let trial = Load {
        keys: Keys::One.count(),
        connections,
        lead_in: TRIAL_LEAD_IN_SECONDS,
        seconds: TRIAL_SECONDS,
        expected: 200,
    };
    let mut text = "upsert per request, req/s by size of the pool:".to_owned();
    for pool in pool::SIZES {
        let set_up = SetUp {
            database: directory.join(format!("pool-{pool}.db")),
            pool,
            quota: Quota::Endless,
            filled: trial.keys,
            redis: None,
        };
        let rate = Servers::start(Contestant::Upsert, set_up)?
            .load(trial)?
            .per_second;
        let _ = write!(text, " {pool}: {rate:.0}");
        if rate > best.1 {
            best = (pool, rate);
        }
    }
    Ok((best.0, text))
}

/// How each contestant is set, once.
pub(crate) fn set_ups<'a>(servers: impl Iterator<Item = (Contestant, &'a Servers)>) -> Vec<String> {
    let mut told: Vec<Contestant> = Vec::new();
    let mut lines = Vec::new();
    for (contestant, servers) in servers {
        if !told.contains(&contestant) {
            told.push(contestant);
            lines.push(format!("{}: {}", contestant.label(), servers.settings()));
        }
    }
    lines
}

fn judge_loader(entrants: &[Entrant], rows: &[Row]) -> String {
    let row = |entrant: Entrant| {
        let index = entrants.iter().position(|other| *other == entrant);
        index.map(|index| &rows[index])
    };
    match row(NONE).zip(row(GOVERNOR)) {
        Some((none, governor)) => judge(none, governor),
        None => String::new(),
    }
}

/// Whether the servers were measured, or the client.
pub(crate) fn judge(none: &Row, governor: &Row) -> String {
    let leads = none.ratios_to(governor);
    let lead = median(&leads);
    let ahead = leads.iter().filter(|lead| **lead > 1.0).count();
    let micros = none.median(|turn| turn.loader_cpu_micros.unwrap_or(f64::NAN));
    let busy = micros * none.median(|turn| turn.per_second) / 1e4;
    let verdict = if lead >= VISIBLY_AHEAD {
        "No limiter is visibly ahead of tower_governor: the servers were measured."
    } else {
        "No limiter is NOT visibly ahead of tower_governor: this run measured the loader (or noise), not the servers."
    };
    format!(
        "{verdict}\n\
         It made {lead:.3} times the requests (should be {VISIBLY_AHEAD} at least), and more in {ahead} of {} rounds. \
         Meanwhile the loader used {busy:.0} % of one CPU.",
        leads.len()
    )
}
