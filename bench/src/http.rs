//! The benchmark over HTTP: a server process for each contestant, loaded one after the other from another process.

use std::path::Path;

use anyhow::Result;

use crate::child::Servers;
use crate::contest::{self, Entrant, GOVERNOR, NONE};
use crate::contestant::{Contestant, Quota};
use crate::keys::Keys;
use crate::load::Load;
use crate::redis::Redis;
use crate::report::{self, Row, Wording};
use crate::results::{self, Results};
use crate::server::{SetUp, WORKERS};
use crate::{Effort, environment, pool, verdict};

/// At most so long each turn is led in: until then what had gone back or cooled down is there again.
const LEAD_IN_SECONDS: f64 = 2.0;
/// For each try of a size of the pool, of which the median counts: below ten seconds in all.
const TRIAL_SECONDS: f64 = 0.4;
const TRIAL_LEAD_IN_SECONDS: f64 = 0.2;

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
    let remarks = vec![judge(quota, &entrants, &rows)];
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
    let trial = Load {
        keys: Keys::One.count(),
        connections,
        lead_in: TRIAL_LEAD_IN_SECONDS,
        seconds: TRIAL_SECONDS,
        expected: 200,
    };
    let mut servers = Vec::new();
    for pool in pool::SIZES {
        let set_up = SetUp {
            database: directory.join(format!("pool-{pool}.db")),
            pool,
            quota: Quota::Endless,
            filled: trial.keys,
            redis: None,
        };
        servers.push(Servers::start(Contestant::Upsert, set_up)?);
    }
    let mut rates = pool::SIZES.map(|_| Vec::new());
    for _ in 0..pool::TRIES {
        for (servers, rates) in servers.iter().zip(&mut rates) {
            rates.push(servers.load(trial)?.per_second);
        }
    }
    let (best, tried) = pool::best(&rates);
    Ok((
        best,
        format!("upsert per request, req/s by size of the pool: {tried}"),
    ))
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

/// Whether the servers were measured, or the loader.
fn judge(quota: Quota, entrants: &[Entrant], rows: &[Row]) -> String {
    let row = |entrant: Entrant| {
        let index = entrants.iter().position(|other| *other == entrant);
        index.map(|index| &rows[index])
    };
    match (quota, row(NONE).zip(row(GOVERNOR))) {
        (Quota::One, _) => verdict::of_refused(rows),
        (Quota::Endless, Some((none, governor))) => verdict::of_admitted(none, governor),
        (Quota::Endless, None) => String::new(),
    }
}
