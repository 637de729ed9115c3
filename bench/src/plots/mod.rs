//! Draws the plots of the guide pages. What they show was decided by the library, on a clock that is set.

mod drawing;
mod requests;
mod shown;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::runtime;

use self::shown::Shown;

/// Where the guide pages look for it.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/images");
const ALGORITHMS: &str = "algorithms.svg";

/// Writes the plots; the same ones each time.
pub(crate) fn run(folder: Option<PathBuf>) -> Result<()> {
    let folder = folder.unwrap_or_else(|| PathBuf::from(FOLDER));
    fs::create_dir_all(&folder)?;
    write(&folder.join(ALGORITHMS), &algorithms()?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plot_in_the_guide_is_what_the_library_decides() -> Result<()> {
        let checked_in = fs::read_to_string(Path::new(FOLDER).join(ALGORITHMS))?;
        assert!(
            checked_in == algorithms()?,
            "run: cargo run --release --manifest-path bench/Cargo.toml -- plots"
        );
        Ok(())
    }
}
