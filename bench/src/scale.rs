//! The benchmark over HTTP along three axes: how many keys there are, how many connections, how many server processes.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::child::Servers;
use crate::contestant::{Contestant, Quota};
use crate::http::{self, WORDING};
use crate::keys::{Keys, grouped};
use crate::load::Load;
use crate::measured::Measured;
use crate::report::{self, Row};
use crate::results;
use crate::server::{SetUp, WORKERS};
use crate::{Effort, environment, verdict};

/// The name of its results.
pub(crate) const NAME: &str = "scale";

/// Those that are measured at each point. The first two tell whether the loader was measured; the last may not be there.
pub(crate) const CONTESTANTS: [Contestant; 5] = [
    Contestant::None,
    Contestant::Governor,
    Contestant::Tollgate,
    Contestant::Upsert,
    Contestant::Redis,
];

/// What is varied, one at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axis {
    Keys,
    Connections,
    Processes,
}

/// A place on each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) keys: u32,
    pub(crate) connections: u32,
    pub(crate) processes: u32,
}

/// What is the same while something else is varied.
const BASE: Point = Point {
    keys: 10_000,
    connections: 64,
    processes: 1,
};

/// A contestant at a point.
#[derive(Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) point: Point,
    pub(crate) contestant: Contestant,
    pub(crate) turns: Vec<Measured>,
}

/// Everything that was measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Scale {
    pub(crate) environment: String,
    pub(crate) settings: Vec<String>,
    pub(crate) cells: Vec<Cell>,
}

/// Measures, and prints what was found, up to so many keys.
pub(crate) fn run(effort: Effort, most_keys: u32) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let environment = environment::of_run()?;
    println!("{environment}");
    let (pool, trial) = http::best_pool(directory.path(), effort.connections)?;
    let mut settings = vec![
        "Keep-alive connections, one request under way on each, from one thread of another process, spread over the servers"
            .to_owned(),
        format!(
            "{} interleaved rounds of {} s each, after {} s of the same load; axum on {WORKERS} workers in each process",
            effort.rounds,
            effort.seconds,
            http::lead_in(effort.seconds),
        ),
        "Several processes: tollgate and the upsert on one file, Redis one server, tower_governor each for itself".to_owned(),
        "Each key has had a request before it begins".to_owned(),
        trial,
    ];
    println!("{}", settings.join("\n"));
    let contestants = if http::has_redis() {
        &CONTESTANTS[..]
    } else {
        &CONTESTANTS[..CONTESTANTS.len() - 1]
    };

    let mut cells = Vec::new();
    let points = points();
    let points: Vec<_> = points
        .iter()
        .filter(|point| point.keys <= most_keys)
        .collect();
    for (index, point) in points.iter().enumerate() {
        eprintln!("point {} of {}: {}", index + 1, points.len(), point.label());
        let servers = start(**point, contestants, pool)?;
        if index == 0 {
            let servers = contestants.iter().copied().zip(&servers.1);
            let set_ups = http::set_ups(servers);
            println!("{}", set_ups.join("\n"));
            settings.extend(set_ups);
        }
        let rows = take_turns(**point, contestants, &servers.1, effort)?;
        println!("\n{}\n{}", point.label(), report::table(&rows, WORDING));
        println!("{}", verdict::of_admitted(&rows[0], &rows[1]));
        cells.extend(
            rows.into_iter()
                .zip(contestants)
                .map(|(row, contestant)| Cell {
                    point: **point,
                    contestant: *contestant,
                    turns: row.turns,
                }),
        );
    }
    if effort.save {
        let scale = Scale {
            environment,
            settings,
            cells,
        };
        results::save(NAME, &scale)?;
    }
    Ok(())
}

/// Servers for each contestant, in a folder of their own that goes after them.
fn start(
    point: Point,
    contestants: &[Contestant],
    pool: u32,
) -> Result<(tempfile::TempDir, Vec<Servers>)> {
    let directory = tempfile::tempdir()?;
    let mut servers = Vec::new();
    for contestant in contestants {
        let set_up = SetUp {
            database: directory
                .path()
                .join(format!("{}.db", contestant.argument())),
            pool,
            quota: Quota::Endless,
            filled: point.keys,
            redis: None,
        };
        servers.push(Servers::start_several(
            *contestant,
            set_up,
            point.processes,
        )?);
    }
    Ok((directory, servers))
}

fn take_turns(
    point: Point,
    contestants: &[Contestant],
    servers: &[Servers],
    effort: Effort,
) -> Result<Vec<Row>> {
    let row = |contestant: &Contestant| Row {
        label: contestant.label().to_owned(),
        turns: Vec::new(),
    };
    let mut rows: Vec<_> = contestants.iter().map(row).collect();
    for round in 0..effort.rounds {
        for index in http::in_turn(round, contestants.len()) {
            let load = Load {
                keys: point.keys,
                connections: point.connections as usize,
                lead_in: http::lead_in(effort.seconds),
                seconds: effort.seconds,
                expected: 200,
            };
            rows[index].turns.push(servers[index].load(load)?);
        }
    }
    Ok(rows)
}

impl Axis {
    pub(crate) const ALL: [Self; 3] = [Self::Keys, Self::Connections, Self::Processes];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Connections => "connections",
            Self::Processes => "server processes",
        }
    }

    pub(crate) fn values(self) -> &'static [u32] {
        match self {
            Self::Keys => &[10, 100, 1_000, 10_000, 100_000, 1_000_000],
            Self::Connections => &[1, 64, 512],
            Self::Processes => &[1, 2, 4],
        }
    }

    /// Where only this axis is varied.
    pub(crate) fn point(self, value: u32) -> Point {
        let mut point = BASE;
        match self {
            Self::Keys => point.keys = value,
            Self::Connections => point.connections = value,
            Self::Processes => point.processes = value,
        }
        point
    }

    /// What is the same at all its points.
    pub(crate) fn fixed(self) -> String {
        let keys = Keys::Of(BASE.keys).label();
        let connections = format!("{} connections", BASE.connections);
        match self {
            Self::Keys => format!("{connections}, 1 process"),
            Self::Connections => format!("{keys}, 1 process"),
            Self::Processes => format!("{keys}, {connections}"),
        }
    }
}

impl Point {
    pub(crate) fn label(self) -> String {
        let keys = Keys::Of(self.keys).label();
        let plural = |count: u32, one: &str, many: &str| {
            let noun = if count == 1 { one } else { many };
            format!("{} {noun}", grouped(count))
        };
        format!(
            "{keys}, {}, {}",
            plural(self.connections, "connection", "connections"),
            plural(self.processes, "process", "processes")
        )
    }
}

/// Each point once.
fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for axis in Axis::ALL {
        for value in axis.values() {
            let point = axis.point(*value);
            if !points.contains(&point) {
                points.push(point);
            }
        }
    }
    points
}

impl Scale {
    /// What a contestant did at a point, if it was there.
    pub(crate) fn row(&self, contestant: Contestant, point: Point) -> Option<Row> {
        let is_it = |cell: &&Cell| cell.contestant == contestant && cell.point == point;
        let cell = self.cells.iter().find(is_it)?;
        Some(Row {
            label: contestant.label().to_owned(),
            turns: cell.turns.clone(),
        })
    }

    /// Whether the servers were measured at a point, by the turns that were kept.
    pub(crate) fn verdict(&self, point: Point) -> Option<String> {
        let none = self.row(Contestant::None, point)?;
        let governor = self.row(Contestant::Governor, point)?;
        Some(verdict::of_admitted(&none, &governor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axes_meet_in_one_point() {
        assert_eq!(points().len(), 10);
        assert_eq!(points().iter().filter(|point| **point == BASE).count(), 1);
    }
}
