//! The benchmark over HTTP: a server process for each contestant, loaded one after the other from another process.

use std::path::Path;

use anyhow::Result;

use crate::child::Server;
use crate::contestant::{Contestant, Quota};
use crate::keys::Keys;
use crate::load::Load;
use crate::redis::Redis;
use crate::report::{self, Ratio, Row, Wording, median};
use crate::server::WORKERS;
use crate::{Effort, environment, pool};

/// Before the first round, for each contestant.
const WARM_UP_SECONDS: f64 = 1.0;
/// For each size of the pool that is tried.
const TRIAL_SECONDS: f64 = 1.5;
/// How much faster the server without a limiter must be, or the loader is what was measured: a decision of
/// `tower_governor` is some hundredths of what a request costs here, client included.
const VISIBLY_AHEAD: f64 = 1.02;

const WORDING: Wording = Wording {
    rate: "req/s",
    cpu: "server us",
    has_loader: true,
};

/// The rows of the table.
const ENTRANTS: [(Contestant, Keys); 10] = [
    (Contestant::None, Keys::One),
    (Contestant::Governor, Keys::One),
    (Contestant::GovernorHeaders, Keys::One),
    (Contestant::Tollgate, Keys::One),
    (Contestant::Upsert, Keys::One),
    (Contestant::Governor, Keys::Many),
    (Contestant::Tollgate, Keys::Many),
    (Contestant::Upsert, Keys::Many),
    // Last, since it may not be there.
    (Contestant::Redis, Keys::One),
    (Contestant::Redis, Keys::Many),
];
const NONE: usize = 0;
const GOVERNOR: usize = 1;
const GOVERNOR_HEADERS: usize = 2;
const TOLLGATE: usize = 3;
const UPSERT: usize = 4;
const GOVERNOR_MANY: usize = 5;
const TOLLGATE_MANY: usize = 6;
const UPSERT_MANY: usize = 7;
const REDIS: usize = 8;
const REDIS_MANY: usize = 9;

/// What is to be reached when everything is refused.
const RATIOS_REFUSED: [Ratio; 9] = [
    ratio(TOLLGATE, GOVERNOR, Some(1.0)),
    ratio(TOLLGATE, UPSERT, Some(8.0)),
    ratio(TOLLGATE, REDIS, Some(1.25)),
    ratio(TOLLGATE_MANY, GOVERNOR_MANY, None),
    ratio(TOLLGATE_MANY, UPSERT_MANY, None),
    ratio(TOLLGATE_MANY, REDIS_MANY, None),
    ratio(TOLLGATE, NONE, None),
    ratio(NONE, GOVERNOR, None),
    // What is the most that a limiter could reach beside the upsert.
    ratio(NONE, UPSERT, None),
];

const RATIOS: [Ratio; 11] = [
    ratio(TOLLGATE, GOVERNOR, Some(1.0)),
    ratio(TOLLGATE, UPSERT, Some(8.0)),
    ratio(TOLLGATE, REDIS, Some(1.25)),
    ratio(TOLLGATE_MANY, GOVERNOR_MANY, Some(0.95)),
    ratio(TOLLGATE_MANY, UPSERT_MANY, Some(7.0)),
    ratio(TOLLGATE_MANY, REDIS_MANY, Some(1.2)),
    ratio(TOLLGATE, GOVERNOR_HEADERS, None),
    ratio(TOLLGATE, NONE, None),
    ratio(NONE, GOVERNOR, None),
    // What is the most that a limiter could reach beside the upsert.
    ratio(NONE, UPSERT, None),
    ratio(GOVERNOR, UPSERT, None),
];

const fn ratio(of: usize, to: usize, target: Option<f64>) -> Ratio {
    Ratio { of, to, target }
}

/// Measures, and prints what was found.
pub(crate) fn run(effort: Effort, quota: Quota) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let environment = tokio::runtime::Runtime::new()?.block_on(environment::describe())?;
    println!("{environment}");
    let pool = best_pool(directory.path(), effort.connections)?;
    let entrants = entrants();
    let servers = start(entrants, directory.path(), pool, quota)?;
    print_settings(entrants, &servers, effort);

    let load = |contestant: Contestant, seconds| Load {
        connections: effort.connections,
        seconds,
        expected: contestant.expected_status(quota),
        uses_up: false,
    };
    for ((contestant, keys), server) in entrants.iter().zip(&servers) {
        let warm_up = Load {
            uses_up: quota == Quota::One,
            ..load(*contestant, WARM_UP_SECONDS)
        };
        server.load(*keys, warm_up)?;
    }
    let row = |(contestant, keys): &(Contestant, Keys)| Row {
        label: format!("{}, {}", contestant.label(), keys.label()),
        turns: Vec::new(),
    };
    let mut rows: Vec<_> = entrants.iter().map(row).collect();
    Contestant::None.label().clone_into(&mut rows[NONE].label);
    for round in 0..effort.rounds {
        eprintln!("round {} of {}", round + 1, effort.rounds);
        // To and fro: nobody always comes after the same one.
        let mut order: Vec<_> = (0..entrants.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let (contestant, keys) = entrants[index];
            let measured = servers[index].load(keys, load(contestant, effort.seconds))?;
            rows[index].turns.push(measured);
        }
    }
    let ratios = match quota {
        Quota::Endless => &RATIOS[..],
        Quota::One => &RATIOS_REFUSED,
    };
    let ratios: Vec<_> = ratios
        .iter()
        .filter(|ratio| ratio.of.max(ratio.to) < rows.len())
        .copied()
        .collect();
    println!("\n{}", report::table(&rows, WORDING));
    println!("\n{}", report::ratios(&rows, &ratios));
    println!("\n{}", judge_loader(&rows));
    Ok(())
}

/// Those that are there.
fn entrants() -> &'static [(Contestant, Keys)] {
    if Redis::is_there() {
        return &ENTRANTS;
    }
    println!("redis-server is not here, and left out: install it to see it beside the others");
    &ENTRANTS[..REDIS]
}

/// Starts the servers. They are all there all the time; only one has work.
fn start(
    entrants: &[(Contestant, Keys)],
    directory: &Path,
    pool: u32,
    quota: Quota,
) -> Result<Vec<Server>> {
    let server = |(index, (contestant, _)): (usize, &(Contestant, Keys))| {
        let database = directory.join(format!("{index}.db"));
        Server::start(*contestant, &database, pool, quota)
    };
    entrants.iter().enumerate().map(server).collect()
}

/// Finds the size of the pool with which the upsert is fastest.
fn best_pool(directory: &Path, connections: usize) -> Result<u32> {
    let mut best = (0, 0.0);
    let trial = Load {
        connections,
        seconds: TRIAL_SECONDS,
        expected: 200,
        uses_up: false,
    };
    print!("upsert per request, req/s by size of the pool:");
    for pool in pool::SIZES {
        let database = directory.join(format!("pool-{pool}.db"));
        let server = Server::start(Contestant::Upsert, &database, pool, Quota::Endless)?;
        let rate = server.load(Keys::One, trial)?.per_second;
        print!(" {pool}: {rate:.0}");
        if rate > best.1 {
            best = (pool, rate);
        }
    }
    println!();
    Ok(best.0)
}

fn print_settings(entrants: &[(Contestant, Keys)], servers: &[Server], effort: Effort) {
    let Effort {
        rounds,
        seconds,
        connections,
    } = effort;
    println!(
        "{connections} keep-alive connections, one request under way on each, from one thread of another process\n\
         {rounds} interleaved rounds of {seconds} s each; axum on {WORKERS} workers; databases in the temporary folder"
    );
    let mut told: Vec<Contestant> = Vec::new();
    for ((contestant, _), server) in entrants.iter().zip(servers) {
        if !told.contains(contestant) {
            told.push(*contestant);
            println!("{}: {}", contestant.label(), server.settings());
        }
    }
}

/// Whether the servers were measured, or the client.
fn judge_loader(rows: &[Row]) -> String {
    let leads = rows[NONE].ratios_to(&rows[GOVERNOR]);
    let lead = median(&leads);
    let ahead = leads.iter().filter(|lead| **lead > 1.0).count();
    let micros = rows[NONE].median(|turn| turn.loader_cpu_micros.unwrap_or(f64::NAN));
    let busy = micros * rows[NONE].median(|turn| turn.per_second) / 1e4;
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
