//! What a fleet of nodes asks of the store that they share, and how evenly they part what a key has left. One key is simulated by
//! the rules of the crate's engine: nothing is measured, so it is the same on every machine.

mod counter;
mod node;
mod simulation;

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use self::simulation::{Outcome, Plan, simulate};
use crate::keys::grouped;
use crate::page::put;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/scaling.md");
const MARK: &str = "fleet table";
const NODES: [usize; 4] = [1, 10, 100, 1_000];
/// Units of a minute, and requests a second of half of that and of twice as much.
const KEYS: [(&str, u32, u32); 3] = [
    ("a client, 600 a minute", 600, 10),
    ("a tenant, 60,000 a minute", 60_000, 1_000),
    ("everybody, 600,000 a minute", 600_000, 10_000),
];
const SEED: u64 = 1;

/// Simulates all of them, prints the table, and writes it into the page.
pub(crate) fn run() -> Result<()> {
    let table = table();
    println!("{table}");
    let page = fs::read_to_string(Path::new(PAGE)).context("docs/scaling.md can't be read")?;
    fs::write(PAGE, put(&page, MARK, &table)?).context("docs/scaling.md can't be written")?;
    println!("docs/scaling.md is written");
    Ok(())
}

fn table() -> String {
    let mut text = "| key | nodes | calls of the store per request, at half the limit | at twice the limit \
                    | the same without leases | of the limit used | used while others are refused | refused early |\n\
                    | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
        .to_owned();
    for (name, limit, even) in KEYS {
        for nodes in NODES {
            let plan = |rate, has_leases| Plan {
                nodes,
                limit,
                rate,
                has_leases,
            };
            let below = simulate(plan(even / 2, true), SEED);
            let beyond = plan(even * 2, true);
            let above = simulate(beyond, SEED);
            let unleased = simulate(plan(even * 2, false), SEED);
            let _ = write!(
                text,
                "\n| {name} | {} | {} | {} | {} | {} | {} | {} |",
                grouped(nodes),
                calls(&below),
                calls(&above),
                calls(&unleased),
                percent(above.fill(&beyond)),
                percent(above.late(&beyond)),
                percent(above.early()),
            );
        }
    }
    text
}

fn calls(outcome: &Outcome) -> String {
    match outcome.calls_per_request() {
        calls if calls < 0.01 => format!("{calls:.4}"),
        calls => format!("{calls:.2}"),
    }
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_what_is_simulated() -> Result<()> {
        let page = fs::read_to_string(PAGE)?;
        assert!(
            page == put(&page, MARK, &table())?,
            "run: cargo run --release --manifest-path bench/Cargo.toml -- fleet"
        );
        Ok(())
    }
}
