//! Writes the tables of `docs/benchmarks.md` from what was measured last, between its marks. The words around them stay.

mod blocks;
pub(crate) use self::blocks::put;
mod numbers;
mod summary;
mod tables;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::contestant::Quota;
use crate::instructions::Counts;
use crate::results::{self, Results};
use crate::scale::{self, Axis, Scale};
use crate::{decisions, instructions, plots, stores};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/benchmarks.md");

/// Writes the page and its plots anew.
pub(crate) fn run() -> Result<()> {
    let page = read()?;
    fs::write(PAGE, written(&page)?).context("the page can't be written")?;
    println!("docs/benchmarks.md is written");
    plots::run(None)
}

fn read() -> Result<String> {
    fs::read_to_string(Path::new(PAGE)).context("docs/benchmarks.md can't be read")
}

/// The page with its tables.
fn written(page: &str) -> Result<String> {
    let http: Results = results::load(Quota::Endless.command())?;
    let refused: Results = results::load(Quota::One.command())?;
    let decisions: Results = results::load(decisions::NAME)?;
    let scale: Scale = results::load(scale::NAME)?;
    let stores: Results = results::load(stores::NAME)?;
    let mut page = page.to_owned();
    let mut put = |name: &str, text: String| -> Result<()> {
        page = blocks::put(&page, name, &text)?;
        Ok(())
    };
    put("targets", summary::table(&http, &refused, &decisions))?;
    put("machine", tables::code(&[&http.environment]))?;
    for (name, unit, results) in [
        ("http", "req/s", &http),
        ("refused", "req/s", &refused),
        (decisions::NAME, "decisions/s", &decisions),
    ] {
        put(
            &format!("{name} settings"),
            tables::settings(&results.settings),
        )?;
        put(&format!("{name} table"), tables::rows(&results.rows, unit))?;
        put(&format!("{name} ratios"), tables::ratios(results))?;
    }
    put("stores settings", tables::settings(&stores.settings))?;
    put("stores table", tables::rows_with_trips(&stores.rows))?;
    put("stores ratios", tables::ratios(&stores))?;
    put("decisions whole", tables::wholes(&decisions.wholes))?;
    let counts: Counts = results::load(instructions::NAME)?;
    put("instructions table", tables::counts(&counts.rows))?;
    put("scale settings", tables::settings(&scale.settings))?;
    for axis in Axis::ALL {
        put(
            &format!("scale {}", axis.label()),
            tables::axis(&scale, axis),
        )?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_what_was_measured() -> Result<()> {
        let page = read()?;
        assert!(
            page == written(&page)?,
            "run: cargo run --release --manifest-path bench/Cargo.toml -- page"
        );
        Ok(())
    }
}
