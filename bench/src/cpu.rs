//! CPU time of a process and of the whole machine, from `/proc` (Linux alone).

use std::fs;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

/// `USER_HZ`, which Linux keeps at 100 for what it tells programs on every common machine.
const TICKS_PER_SECOND: f64 = 100.0;

/// What a turn used of the CPUs. All is `None` where there is no `/proc`.
pub(crate) struct Used {
    /// Of the process that was watched.
    pub(crate) by_process: Option<Duration>,
    /// Of everyone, as a share of all CPUs.
    pub(crate) share_of_machine: Option<f64>,
}

/// A turn that goes on.
pub(crate) struct Watch {
    process: u32,
    helper: Option<u32>,
    since: Instant,
    by_process: Option<Duration>,
    by_all: Option<Duration>,
}

impl Watch {
    pub(crate) fn this_process() -> Self {
        Self::processes(process::id(), None)
    }

    /// A process, and another one that works for it.
    pub(crate) fn processes(process: u32, helper: Option<u32>) -> Self {
        Self {
            process,
            helper,
            since: Instant::now(),
            by_process: of_both(process, helper),
            by_all: of_machine(),
        }
    }

    pub(crate) fn used(&self) -> Used {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let available = self.since.elapsed().as_secs_f64() * cpus as f64;
        let by_all = difference(of_machine(), self.by_all);
        Used {
            by_process: difference(of_both(self.process, self.helper), self.by_process),
            share_of_machine: by_all.map(|used| used.as_secs_f64() / available),
        }
    }
}

fn difference(after: Option<Duration>, before: Option<Duration>) -> Option<Duration> {
    after?.checked_sub(before?)
}

fn of_both(process: u32, helper: Option<u32>) -> Option<Duration> {
    let helper = helper.map_or(Some(Duration::ZERO), of_process);
    of_process(process)?.checked_add(helper?)
}

/// The time that all threads of a process have run, in user and kernel mode.
fn of_process(id: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name, in parentheses, may hold spaces: counting starts behind it, at the third field.
    let (_, fields) = stat.rsplit_once(')')?;
    let times: Vec<_> = fields.split_ascii_whitespace().skip(11).take(2).collect();
    sum(&times)
}

/// The time that all CPUs were not idle: user, nice, system, then, after idle and waiting, interrupts and stolen time.
fn of_machine() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let all = stat.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<_> = all.split_ascii_whitespace().take(8).collect();
    sum(times.get(..3)?)?.checked_add(sum(times.get(5..)?)?)
}

fn sum(ticks: &[&str]) -> Option<Duration> {
    let ticks: f64 = ticks
        .iter()
        .map(|ticks| ticks.parse::<f64>().ok())
        .sum::<Option<f64>>()?;
    Duration::try_from_secs_f64(ticks / TICKS_PER_SECOND).ok()
}
