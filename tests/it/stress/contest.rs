//! A contest: rounds in which each process asks for all keys until it is refused, and what may happen meanwhile.

use std::env;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::thread;

use fastrand::Rng;
use tempfile::TempDir;

use super::course::Course;
use super::ledger::Ledger;

/// The start of a second, an hour, a day and a year: 2100-01-01T00:00:00Z. Later than any clock of today, so that a sweep by
/// the system's would find nothing. It is in the midst of each contest.
const NEW_YEAR: i64 = 4_102_444_800_000;
/// How far the clocks of processes are apart, in milliseconds.
const APART: i64 = 7;
/// How far a clock steps back, in milliseconds: up to two windows of a second.
const REACH: u32 = 2_000;
/// A round in eight is so much later, in milliseconds: some half of an hour.
const LEAP: i64 = 1_700_000;

/// What the clocks of the processes show.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Clocks {
    /// The same second, and the same instant but for steps back.
    Together,
    /// The same, but for a few milliseconds, and steps back of seconds.
    Apart,
    /// The time.
    System,
}

/// What each process does, and what is done to it.
pub(super) struct Contest {
    pub(super) limiters: &'static [&'static str],
    pub(super) keys: usize,
    pub(super) clocks: Clocks,
    /// By how many milliseconds a set clock is later in the next round.
    pub(super) step: RangeInclusive<i64>,
    /// More of them in a soak, where the clock moves. With [`Clocks::System`] a contest lasts until so many were admitted for each.
    pub(super) rounds: u32,
    pub(super) admitted_a_round: u64,
    /// How many of 10,000 rounds of a process end with its death.
    pub(super) kills: u32,
    /// How many of 10,000 charges go with a reset, a refund, a new limit, more than one unit, a step of the process's clock.
    pub(super) resets: u32,
    pub(super) refunds: u32,
    pub(super) limits: u32,
    pub(super) large: u32,
    pub(super) steps: u32,
    /// How many are the last of their task in a round. Otherwise it ends when all keys are used up.
    pub(super) leaves: u32,
    /// The server on which they contend, rather than on a file.
    pub(super) url: Option<String>,
}

impl Default for Contest {
    fn default() -> Self {
        Self {
            limiters: &["fixed:3:1", "fixed:10:1", "fixed:100:1", "fixed:1000:1"],
            keys: 3,
            clocks: Clocks::Apart,
            step: 150..=700,
            rounds: 10,
            admitted_a_round: 0,
            kills: 0,
            resets: 0,
            refunds: 0,
            limits: 0,
            large: 0,
            steps: 0,
            leaves: 0,
            url: None,
        }
    }
}

/// What is left of a contest.
pub(super) struct Ended {
    pub(super) ledger: Ledger,
    pub(super) path: PathBuf,
    /// Whether a machine was so busy that more may be stored than was told.
    pub(super) was_late: bool,
    _folder: TempDir,
    _seed: Seed,
}

impl Contest {
    /// One of processes that are killed, while keys are reset.
    pub(super) fn of_kills() -> Self {
        Self {
            kills: 4_000,
            resets: 5,
            leaves: 5,
            ..Self::default()
        }
    }

    /// One in which units come back by refunds and closed stores.
    pub(super) fn of_what_comes_back() -> Self {
        Self {
            limiters: &[
                "fixed:10:1",
                "fixed:1000:1",
                "hourly:300",
                "sliding-counter:100:1",
                "fixed:40:1,hourly:300,sliding-counter:30:1",
            ],
            clocks: Clocks::Together,
            step: 0..=0,
            rounds: 2,
            refunds: 2_000,
            large: 1_000,
            leaves: 100,
            ..Self::default()
        }
    }

    /// One in which limits change and units are refunded, while processes are killed and keys are reset.
    pub(super) fn of_new_limits() -> Self {
        Self {
            limiters: &["fixed:10:1", "fixed:300:1", "hourly:300", "daily:500"],
            kills: 2_000,
            resets: 10,
            refunds: 500,
            limits: 50,
            large: 500,
            leaves: 5,
            ..Self::default()
        }
    }

    /// One of sliding counters, of processes that are killed, and of clocks that step on together.
    pub(super) fn of_sliding_counters() -> Self {
        Self {
            limiters: &[
                "sliding-counter:10:1",
                "sliding-counter:100:1",
                "fixed:50:1,hourly:400,sliding-counter:60:1",
            ],
            clocks: Clocks::Together,
            kills: 4_000,
            resets: 50,
            large: 300,
            steps: 50,
            ..Self::default()
        }
    }

    /// Lets the processes contend, and closes their stores one after another.
    pub(super) fn run(&self) -> Ended {
        self.run_and(|_, _| {})
    }

    /// The same; and once more when it was late, since what is exact without kills is so for those who are in time.
    pub(super) fn run_in_time(&self) -> Ended {
        in_time(|| self.run())
    }

    /// The same; but a process that comes when all have closed asks for what is left. The clocks stand still.
    pub(super) fn run_and_take_the_rest(&self) -> Ended {
        in_time(|| self.run_with_rest())
    }

    /// The same, whether it was late or not.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(super) fn run_and_take_the_rest_once(&self) -> Ended {
        self.run_with_rest()
    }

    fn run_with_rest(&self) -> Ended {
        assert!(self.step == (0..=0) && self.clocks == Clocks::Together);
        self.run_and(|course, path| {
            let last = Self {
                limiters: self.limiters,
                keys: self.keys,
                url: self.url.clone(),
                ..Self::default()
            };
            course.begin(last.arguments(path), 1);
            course.round(|_| Some(NEW_YEAR));
            course.close();
        })
    }

    fn run_and(&self, rest: impl FnOnce(&mut Course, &Path)) -> Ended {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits.db");
        let seed = Seed::new();
        let mut rng = Rng::with_seed(seed.0);
        let mut course = Course::new(Ledger::new(self.limiters), rng.fork(), self.kills);
        course.runaway = 20 * course.ledger.quota() * self.keys as u64 + 10_000;
        course.begin(self.arguments(&path), 4);
        let rounds = if self.step == (0..=0) {
            self.rounds
        } else {
            self.rounds * scale()
        };
        if self.clocks == Clocks::System {
            let admitted = self.admitted_a_round * u64::from(rounds);
            while course.ledger.admitted < admitted {
                course.round(|_| None);
            }
        } else {
            for now in self.instants(rounds, &mut rng) {
                course.round(|rng| Some(self.instant(now, rng)));
            }
        }
        course.close();
        rest(&mut course, &path);
        course.tell(self.limiters);
        Ended {
            ledger: course.ledger,
            path,
            was_late: course.was_late,
            _folder: folder,
            _seed: seed,
        }
    }

    /// What set clocks show in each round.
    fn instants(&self, rounds: u32, rng: &mut Rng) -> Vec<i64> {
        let mut now = 0;
        let mut instants = Vec::new();
        for _ in 0..rounds {
            instants.push(now);
            let leap = if rng.u32(..8) == 0 { LEAP } else { 0 };
            let step = rng.i64(self.step.clone());
            now += if step > 0 { step + leap } else { 0 };
        }
        let middle = instants[instants.len() / 2];
        instants.iter().map(|at| at - middle + NEW_YEAR).collect()
    }

    /// What the clock of a process shows.
    fn instant(&self, now: i64, rng: &mut Rng) -> i64 {
        match self.clocks {
            Clocks::Apart => now + rng.i64(0..=APART),
            _ => now,
        }
    }

    /// Those of `bin/contender.rs`.
    fn arguments(&self, path: &Path) -> Vec<String> {
        let clock = match self.clocks {
            Clocks::System => "system",
            _ => "set",
        };
        let rates = [
            self.resets,
            self.refunds,
            self.limits,
            self.large,
            self.steps,
            match self.clocks {
                Clocks::Together => 0,
                _ => REACH,
            },
            self.leaves,
        ];
        let rates = rates.map(|rate| rate.to_string()).join(",");
        let place = self.url.as_deref();
        let own = [
            place.unwrap_or_else(|| path.to_str().unwrap()),
            clock,
            &self.keys.to_string(),
            &rates,
        ];
        let arguments = own.iter().chain(self.limiters);
        arguments.map(|argument| (*argument).to_owned()).collect()
    }
}

fn in_time(run: impl Fn() -> Ended) -> Ended {
    loop {
        let ended = run();
        if !ended.was_late {
            break ended;
        }
    }
}

/// By how much a contest is to be longer: a soak sets `TOLLGATE_STRESS`.
pub(super) fn scale() -> u32 {
    env::var("TOLLGATE_STRESS").map_or(1, |scale| scale.parse().unwrap())
}

/// What the choices of a contest come from: told when it fails, and set by `TOLLGATE_STRESS_SEED`.
struct Seed(u64);

impl Seed {
    fn new() -> Self {
        let set = env::var("TOLLGATE_STRESS_SEED");
        Self(set.map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap()))
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("TOLLGATE_STRESS_SEED={}", self.0);
        }
    }
}
