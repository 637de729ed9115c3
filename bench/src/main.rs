//! The command line: what to measure, and for how long.

mod child;
mod contest;
mod contestant;
mod cpu;
mod decider;
mod decisions;
mod environment;
mod fleet;
mod governed;
mod http;
mod instructions;
mod keys;
mod load;
mod measured;
mod metering;
mod ours;
mod page;
mod plots;
mod pool;
mod postgres;
mod redis;
mod refusal;
mod report;
mod response;
mod results;
mod scale;
mod server;
mod sizing;
mod sliding;
mod sqlite_work;
mod stores;
mod trips;
mod turn;
mod upsert;
mod verdict;
mod whole;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};

use self::contestant::{Contestant, Quota};
use self::instructions::Subject as Counted;
use self::keys::Keys;
use self::load::{Load, Loaded};
use self::server::SetUp;
use self::sizing::Subject;

/// Measures tollgate beside no limiter, `tower_governor`, one upsert per request, and one `INCR` in Redis.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Loads a hello-world axum server behind each limiter, from another process.
    Http(Effort),
    /// The same, of keys that have used all they may: everything is refused.
    Refused(Effort),
    /// The same with this crate's stores, with leases and without, beside one `INCR` in Redis: 10,000 keys.
    Stores(Effort),
    /// The same as `http`, with more and fewer keys, connections and server processes.
    Scale {
        #[command(flatten)]
        effort: ShortEffort,
        /// Leaves out the points with more keys.
        #[arg(long, default_value_t = MOST_KEYS)]
        most_keys: u32,
    },
    /// Asks each limiter for decisions, without HTTP.
    Decisions(Effort),
    /// Counts the instructions of one decision; needs valgrind.
    Instructions {
        /// Keeps what was counted, for `page`.
        #[arg(long)]
        save: bool,
    },
    /// Asks full exact sliding windows of several limits, without HTTP, beside windows that count their events.
    Sliding(Effort),
    /// Has a layer record its requests, and asks a file of many for what was used.
    Metering {
        #[command(flatten)]
        effort: Effort,
        /// Requests that the file holds.
        #[arg(long, default_value_t = 10_000_000)]
        calls: u64,
    },
    /// Counts keys and records requests, and tells what they take on disk and in memory.
    Sizing {
        /// Keys, each with one request.
        #[arg(long, default_value_t = 100_000)]
        keys: u32,
    },
    /// Runs `http`, `refused`, `stores`, `decisions`, `scale` and `instructions`, keeps what they measure, and writes the page on
    /// benchmarks. About 30
    /// minutes.
    All(Effort),
    /// Simulates what a fleet of nodes asks of a store, and writes the table of the page on scaling.
    Fleet,
    /// Writes the tables and plots of the page on benchmarks, of what was kept last.
    Page,
    /// Draws the plots of the guide pages.
    Plots {
        /// Where to, instead of docs/images.
        #[arg(long)]
        folder: Option<PathBuf>,
    },
    /// The server that `http` loads, one for each contestant: prints its address, ends with its standard input.
    #[command(hide = true)]
    Server {
        contestant: Contestant,
        #[command(flatten)]
        set_up: SetUp,
    },
    /// The process that `sizing` has for each subject: prints its sizes.
    #[command(hide = true)]
    Sized {
        subject: Subject,
        #[arg(long)]
        keys: u32,
    },
    /// The process that `instructions` counts.
    #[command(hide = true)]
    Counted { subject: Counted, keys: u32 },
    /// The process that loads a server: prints what it measured.
    #[command(hide = true)]
    Load {
        #[command(flatten)]
        loaded: Loaded,
        #[command(flatten)]
        load: Load,
    },
}

const CONNECTIONS: usize = 64;
const SHORT_ROUNDS: usize = 3;
const SHORT_SECONDS: f64 = 1.5;
const MOST_KEYS: u32 = 1_000_000;

/// How much is measured.
#[derive(Clone, Copy, clap::Args)]
struct Effort {
    /// Rounds; in each of them every contestant has its turn.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Seconds of a turn.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Keep-alive connections, or tasks: each has one request under way at any time.
    #[arg(long, default_value_t = CONNECTIONS)]
    connections: usize,
    /// Keeps what was measured, for `page`.
    #[arg(long)]
    save: bool,
}

/// How much is measured at each of many points.
#[derive(Clone, Copy, clap::Args)]
struct ShortEffort {
    /// Rounds; in each of them every contestant has its turn.
    #[arg(long, default_value_t = SHORT_ROUNDS)]
    rounds: usize,
    /// Seconds of a turn.
    #[arg(long, default_value_t = SHORT_SECONDS)]
    seconds: f64,
    /// Keeps what was measured, for `page`.
    #[arg(long)]
    save: bool,
}

impl From<ShortEffort> for Effort {
    fn from(short: ShortEffort) -> Self {
        let ShortEffort {
            rounds,
            seconds,
            save,
        } = short;
        Self {
            rounds,
            seconds,
            connections: CONNECTIONS,
            save,
        }
    }
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Http(effort) => http::run(checked(effort)?, Quota::Endless),
        Command::Refused(effort) => http::run(checked(effort)?, Quota::One),
        Command::Stores(effort) => stores::run(checked(effort)?),
        Command::Scale { effort, most_keys } => scale::run(checked(effort.into())?, most_keys),
        Command::Decisions(effort) => decisions::run(checked(effort)?),
        Command::Instructions { save } => instructions::run(save),
        Command::Counted { subject, keys } => instructions::run_one(subject, Keys::Of(keys)),
        Command::Sliding(effort) => sliding::run(checked(effort)?),
        Command::Metering { effort, calls } => metering::run(checked(effort)?, calls),
        Command::Sizing { keys } => sizing::run(keys),
        Command::Sized { subject, keys } => sizing::run_one(subject, keys),
        Command::All(effort) => all(effort),
        Command::Fleet => fleet::run(),
        Command::Page => page::run(),
        Command::Plots { folder } => plots::run(folder),
        Command::Server { contestant, set_up } => server::run(contestant, set_up),
        Command::Load { loaded, load } => load::run(&loaded, load),
    }
}

/// Everything that the page on benchmarks shows.
fn all(effort: Effort) -> Result<()> {
    let effort = checked(Effort {
        save: true,
        ..effort
    })?;
    http::run(effort, Quota::Endless)?;
    http::run(effort, Quota::One)?;
    stores::run(effort)?;
    decisions::run(effort)?;
    let short = Effort {
        rounds: effort.rounds.min(SHORT_ROUNDS),
        seconds: effort.seconds.min(SHORT_SECONDS),
        ..effort
    };
    scale::run(short, MOST_KEYS)?;
    instructions::run(true)?;
    page::run()
}

fn checked(effort: Effort) -> Result<Effort> {
    ensure!(effort.rounds > 0, "--rounds must be at least 1");
    ensure!(effort.connections > 0, "--connections must be at least 1");
    ensure!(
        (0.1..=600.0).contains(&effort.seconds),
        "--seconds must be between 0.1 and 600"
    );
    Ok(effort)
}
