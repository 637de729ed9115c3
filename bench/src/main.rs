//! The command line: what to measure, and for how long.

mod child;
mod contestant;
mod cpu;
mod decider;
mod decisions;
mod environment;
mod governed;
mod http;
mod instructions;
mod keys;
mod load;
mod measured;
mod metering;
mod plots;
mod pool;
mod redis;
mod report;
mod response;
mod server;
mod sizing;
mod sliding;
mod sqlite_work;
mod turn;
mod upsert;
mod whole;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};

use self::contestant::{Contestant, Quota};
use self::instructions::Subject as Counted;
use self::keys::Keys;
use self::load::Load;
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
    /// Asks each limiter for decisions, without HTTP.
    Decisions(Effort),
    /// Counts the instructions of one decision; needs valgrind.
    Instructions,
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
        #[arg(long)]
        database: PathBuf,
        #[arg(long, default_value_t = 1)]
        pool: u32,
        #[arg(long)]
        quota: Quota,
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
    Counted { subject: Counted, keys: Keys },
    /// The process that loads a server: prints what it measured.
    #[command(hide = true)]
    Load {
        address: SocketAddr,
        keys: Keys,
        #[command(flatten)]
        load: Load,
    },
}

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
    #[arg(long, default_value_t = 64)]
    connections: usize,
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Http(effort) => http::run(checked(effort)?, Quota::Endless),
        Command::Refused(effort) => http::run(checked(effort)?, Quota::One),
        Command::Decisions(effort) => decisions::run(checked(effort)?),
        Command::Instructions => instructions::run(),
        Command::Counted { subject, keys } => instructions::run_one(subject, keys),
        Command::Sliding(effort) => sliding::run(checked(effort)?),
        Command::Metering { effort, calls } => metering::run(checked(effort)?, calls),
        Command::Sizing { keys } => sizing::run(keys),
        Command::Sized { subject, keys } => sizing::run_one(subject, keys),
        Command::Plots { folder } => plots::run(folder),
        Command::Server {
            contestant,
            database,
            pool,
            quota,
        } => server::run(contestant, &database, pool, quota),
        Command::Load {
            address,
            keys,
            load,
        } => load::run(address, keys, load),
    }
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
