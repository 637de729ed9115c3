//! The course of a contest: who is told what, who is killed when, and what is heard.

use fastrand::Rng;

use super::fleet::{Fleet, Said};
use super::ledger::Ledger;

/// So many lines of a round a process may say before it is killed, as a power of two.
const LAST_WORDS: u32 = 9;

pub(super) struct Course {
    pub(super) ledger: Ledger,
    pub(super) rounds: u32,
    /// Whether more may be stored than was told, though nobody was killed.
    pub(super) was_late: bool,
    /// So much is never said in a round, unless nothing is refused: it would have no end.
    pub(super) runaway: u64,
    fleet: Fleet,
    rng: Rng,
    /// How many of 10,000 rounds of a process end with its death.
    kills: u32,
    killed: u32,
    /// Resets and new limits.
    meddled: u32,
    /// Who is to be killed, and after how many lines.
    to_die: Vec<Option<u32>>,
}

impl Course {
    pub(super) fn new(ledger: Ledger, rng: Rng, kills: u32) -> Self {
        Self {
            ledger,
            rounds: 0,
            was_late: false,
            runaway: u64::MAX,
            fleet: Fleet::start(Vec::new(), 0),
            rng,
            kills,
            killed: 0,
            meddled: 0,
            to_die: Vec::new(),
        }
    }

    /// Starts processes. Those before have ended.
    pub(super) fn begin(&mut self, arguments: Vec<String>, processes: usize) {
        self.fleet = Fleet::start(arguments, processes);
        self.to_die = vec![None; processes];
    }

    /// Has each process ask for everything until it is refused. Who is killed before is replaced by another one.
    pub(super) fn round(&mut self, instant: impl Fn(&mut Rng) -> Option<i64>) {
        self.rounds += 1;
        let mut is_busy = vec![true; self.to_die.len()];
        for place in 0..is_busy.len() {
            self.send(place, &instant);
        }
        let mut lines = 0;
        while is_busy.contains(&true) {
            let (place, line) = match self.fleet.hear() {
                (place, Said::Line(line)) => (place, line),
                (Some(_), Said::End) => panic!("a process has ended by itself"),
                (None, Said::End) => continue,
            };
            self.take(&line);
            lines += 1;
            assert!(lines < self.runaway, "nothing is refused");
            let Some(place) = place else {
                continue;
            };
            if line == "done" {
                is_busy[place] = false;
                // With what it has leased and could not spend.
                if self.to_die[place].take().is_some() && self.rng.bool() {
                    self.kill(place);
                }
            } else if let Some(left) = &mut self.to_die[place] {
                *left -= 1;
                if *left == 0 {
                    self.kill(place);
                    self.send(place, &instant);
                }
            }
        }
    }

    fn send(&mut self, place: usize, instant: &impl Fn(&mut Rng) -> Option<i64>) {
        let is_to_die = self.rng.u32(..10_000) < self.kills;
        let longest = 1 << self.rng.u32(..=LAST_WORDS);
        self.to_die[place] = is_to_die.then(|| self.rng.u32(1..=longest));
        let mut command = format!("round {}", self.rng.u64(..));
        if let Some(at) = instant(&mut self.rng) {
            command = format!("{command} {at}");
        }
        self.fleet.tell(place, &format!("{command}\n"));
    }

    fn kill(&mut self, place: usize) {
        self.to_die[place] = None;
        self.killed += 1;
        self.fleet.kill(place);
        self.fleet.replace(place);
    }

    fn take(&mut self, line: &str) {
        match line {
            "ready" | "done" | "closed" => {}
            "late" => self.was_late = true,
            "resetting" | "limiting" => self.meddled += 1,
            told => self.ledger.hear(told),
        }
    }

    /// Closes the stores, one after another: who gives back waits for nobody. Where there are kills, some are killed meanwhile.
    pub(super) fn close(&mut self) {
        for place in 0..self.to_die.len() {
            self.fleet.tell(place, "close\n");
            let is_killed = self.kills > 0 && self.rng.u32(..4) == 0;
            if is_killed {
                self.killed += 1;
                self.fleet.kill(place);
            }
            let mut is_closed = false;
            loop {
                match self.fleet.hear() {
                    (from, Said::Line(line)) => {
                        is_closed |= from == Some(place) && line == "closed";
                        self.take(&line);
                    }
                    (Some(from), Said::End) => {
                        assert_eq!(from, place, "a process has ended by itself");
                        break;
                    }
                    (None, Said::End) => {}
                }
            }
            assert!(is_closed || is_killed, "a store could not be closed");
        }
        while !self.fleet.is_over() {
            if let (_, Said::Line(line)) = self.fleet.hear() {
                self.take(&line);
            }
        }
    }

    /// Tells what it was like.
    pub(super) fn tell(&self, limiters: &[&str]) {
        println!(
            "{} rounds, {} kills, {} resets and limits, {} windows and epochs of keys, {} admitted, {} refused",
            self.rounds,
            self.killed,
            self.meddled,
            self.ledger.windows(),
            self.ledger.admitted,
            self.ledger.refused,
        );
        for ((limiter, place), (full, windows)) in self.ledger.fullness() {
            let policy = limiters[limiter].split(',').nth(place).unwrap();
            let (whole, part) = (full / 100, full % 100);
            println!("{policy}: {windows} windows without resets, {whole}.{part:02} % full");
        }
    }
}
