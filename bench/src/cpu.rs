//! CPU time of a process and of the whole machine, from `/proc` (Linux alone).

use std::fs;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

/// `USER_HZ`, which Linux keeps at 100 for what it tells programs on every common machine.
const TICKS_PER_SECOND: f64 = 100.0;

/// What a turn used of the CPUs. All is `None` where there is no `/proc`.
pub(crate) struct Used {
    /// Of the processes that were watched.
    pub(crate) by_processes: Option<Duration>,
    /// Of everyone, as a share of all CPUs.
    pub(crate) share_of_machine: Option<f64>,
}

/// A turn that goes on.
pub(crate) struct Watch {
    processes: Vec<u32>,
    since: Instant,
    by_processes: Option<Duration>,
    by_all: Option<Duration>,
}

impl Watch {
    pub(crate) fn this_process() -> Self {
        Self::processes(&[process::id()])
    }

    /// Processes that work together.
    pub(crate) fn processes(processes: &[u32]) -> Self {
        Self {
            processes: processes.to_vec(),
            since: Instant::now(),
            by_processes: of_processes(processes),
            by_all: of_machine(),
        }
    }

    pub(crate) fn used(&self) -> Used {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let available = self.since.elapsed().as_secs_f64() * cpus as f64;
        let by_all = difference(of_machine(), self.by_all);
        Used {
            by_processes: difference(of_processes(&self.processes), self.by_processes),
            share_of_machine: by_all.map(|used| used.as_secs_f64() / available),
        }
    }
}

fn difference(after: Option<Duration>, before: Option<Duration>) -> Option<Duration> {
    after?.checked_sub(before?)
}

fn of_processes(ids: &[u32]) -> Option<Duration> {
    ids.iter().map(|id| of_process(*id)).sum()
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
