//! This crate's stores, with leases and without, beside one `INCR` in Redis for each request.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::child::Servers;
use crate::contestant::{Contestant, Quota};
use crate::http::{WORDING, in_turn, lead_in, set_ups};
use crate::keys::Keys;
use crate::load::Load;
use crate::report::{self, Comparison, Figure, Ratio, Row};
use crate::results::{self, Results};
use crate::server::{SetUp, WORKERS};
use crate::{Effort, environment};

/// What its results are kept under.
pub(crate) const NAME: &str = "stores";
const KEYS: Keys = Keys::Many;
/// Postgres tells what it has done a second late.
const UNTIL_COUNTED: Duration = Duration::from_millis(1_500);
/// Round trips that a request on a busy key may take.
pub(crate) const MOST_TRIPS: f64 = 0.1;

const CONTESTANTS: [Contestant; 7] = [
    Contestant::Redis,
    Contestant::Tollgate,
    Contestant::TollgateUnleased,
    Contestant::TollgateRedis,
    Contestant::TollgateRedisUnleased,
    Contestant::TollgatePostgres,
    Contestant::TollgatePostgresUnleased,
];

/// Beside `INCR`: who, and what is to be reached of its rate.
const BESIDE: [(Contestant, Option<f64>); 6] = [
    (Contestant::TollgateRedis, Some(1.3)),
    (Contestant::TollgatePostgres, Some(1.2)),
    (Contestant::Tollgate, None),
    (Contestant::TollgateRedisUnleased, None),
    (Contestant::TollgatePostgresUnleased, None),
    (Contestant::TollgateUnleased, None),
];

/// Measures, and prints what was found.
pub(crate) fn run(effort: Effort) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let environment = environment::of_run()?;
    println!("{environment}");
    let servers = start(directory.path())?;
    let mut settings = vec![
        format!(
            "{}, {} keep-alive connections, one request under way on each, from one thread of another process",
            KEYS.label(),
            effort.connections
        ),
        format!(
            "{} interleaved rounds of {} s each, after {} s of the same load; axum on {WORKERS} workers",
            effort.rounds,
            effort.seconds,
            lead_in(effort.seconds),
        ),
    ];
    settings.extend(set_ups(CONTESTANTS.into_iter().zip(&servers)));
    println!("{}", settings.join("\n"));
    let rows = take_turns(&servers, effort)?;
    let comparisons = comparisons();
    println!("\n{}", report::table(&rows, WORDING));
    for by in &comparisons {
        println!("\n{}", report::ratios_by(by.figure, &rows, &by.ratios));
    }
    let remarks = vec![trips(&rows)];
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
        results::save(NAME, &results)?;
    }
    Ok(())
}

/// Starts the servers. They are all there all the time; only one has work.
fn start(directory: &Path) -> Result<Vec<Servers>> {
    let server = |(index, contestant)| {
        let set_up = SetUp {
            database: directory.join(format!("{index}.db")),
            pool: 1,
            quota: Quota::Endless,
            filled: KEYS.count(),
            redis: None,
        };
        Servers::start(contestant, set_up)
    };
    CONTESTANTS.into_iter().enumerate().map(server).collect()
}

fn take_turns(servers: &[Servers], effort: Effort) -> Result<Vec<Row>> {
    let row = |contestant: Contestant| Row {
        label: contestant.label().to_owned(),
        turns: Vec::new(),
    };
    let mut rows = CONTESTANTS.map(row);
    let load = Load {
        keys: KEYS.count(),
        connections: effort.connections,
        lead_in: lead_in(effort.seconds),
        seconds: effort.seconds,
        expected: 200,
    };
    for round in 0..effort.rounds {
        eprintln!("round {} of {}", round + 1, effort.rounds);
        for index in in_turn(round, CONTESTANTS.len()) {
            let servers = &servers[index];
            let is_counted = CONTESTANTS[index].has_server();
            let before = is_counted.then(|| servers.trips()).transpose()?;
            let mut measured = servers.load(load)?;
            if let Some(before) = before {
                thread::sleep(UNTIL_COUNTED);
                let trips = servers.trips()?.saturating_sub(before);
                let requests = measured.count + measured.led_in;
                measured.trips = Some(trips as f64 / requests as f64);
            }
            rows[index].turns.push(measured);
        }
    }
    Ok(rows.into())
}

fn comparisons() -> Vec<Comparison> {
    let row = |of: Contestant| CONTESTANTS.iter().position(|other| *other == of);
    let ratios = |has_targets: bool| {
        let ratio = |(of, target): &(Contestant, Option<f64>)| {
            Some(Ratio {
                of: row(*of)?,
                to: row(Contestant::Redis)?,
                target: target.filter(|_| has_targets),
            })
        };
        BESIDE.iter().filter_map(ratio).collect()
    };
    [Figure::Rate, Figure::Cpu, Figure::P99]
        .map(|figure| Comparison {
            figure,
            ratios: ratios(figure == Figure::Rate),
        })
        .into()
}

/// The round trips of each, as the servers have counted them.
fn trips(rows: &[Row]) -> String {
    let told = rows.iter().filter_map(|row| {
        let trips = row.known(|turn| turn.trips)?;
        Some(format!("{}: {}", row.label, report::digits(trips)))
    });
    let told: Vec<_> = told.collect();
    format!(
        "Round trips to the server for each request, by its own count (with leases {MOST_TRIPS} at most): {}",
        told.join("; ")
    )
}
