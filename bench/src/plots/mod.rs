//! Draws the plots of the guide pages: what the library decides on a clock that is set, and what was measured.

mod drawing;
mod requests;
mod scale;
mod shown;
mod svg;
mod vertical;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::runtime;

use self::shown::Shown;
use crate::results;
use crate::scale::{NAME, Scale};

/// Where the guide pages look for it.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/images");
const ALGORITHMS: &str = "algorithms.svg";

/// Writes the plots; the same ones each time, until something is measured anew.
pub(crate) fn run(folder: Option<PathBuf>) -> Result<()> {
    let folder = folder.unwrap_or_else(|| PathBuf::from(FOLDER));
    fs::create_dir_all(&folder)?;
    write(&folder.join(ALGORITHMS), &algorithms()?)?;
    for (file, svg) in measured()? {
        write(&folder.join(file), &svg)?;
    }
    Ok(())
}

fn write(path: &Path, svg: &str) -> Result<()> {
    fs::write(path, svg).with_context(|| format!("{} can't be written", path.display()))?;
    println!("{}: {} bytes", path.display(), svg.len());
    Ok(())
}

fn algorithms() -> Result<String> {
    let runtime = runtime::Builder::new_current_thread().build()?;
    let requests = requests::instants();
    let shown = runtime.block_on(Shown::all(&requests))?;
    Ok(drawing::draw(&requests, &shown))
}

/// The plots of what was measured, with the names of their files.
fn measured() -> Result<Vec<(&'static str, String)>> {
    let scale: Scale = results::load(NAME)?;
    let plot = |plot: scale::Plot| (plot.file, scale::draw(plot, &scale));
    Ok(scale::PLOTS.map(plot).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CURE: &str = "run: cargo run --release --manifest-path bench/Cargo.toml -- plots";

    #[test]
    fn the_plot_in_the_guide_is_what_the_library_decides() -> Result<()> {
        let checked_in = fs::read_to_string(Path::new(FOLDER).join(ALGORITHMS))?;
        assert!(checked_in == algorithms()?, "{CURE}");
        Ok(())
    }

    #[test]
    fn the_plots_of_the_benchmarks_are_of_what_was_measured() -> Result<()> {
        for (file, svg) in measured()? {
            let checked_in = fs::read_to_string(Path::new(FOLDER).join(file))?;
            assert!(checked_in == svg, "{file}: {CURE}");
        }
        Ok(())
    }
}
