//! What a turn measured.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// What one turn of one contestant measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Requests or decisions.
    pub(crate) count: u64,
    /// Those among them that were not answered as they should be.
    pub(crate) failed: u64,
    pub(crate) per_second: f64,
    pub(crate) p50_micros: f64,
    pub(crate) p99_micros: f64,
    /// CPU of the server for each request; without HTTP, of the process for each decision.
    pub(crate) cpu_micros: Option<f64>,
    /// CPU of the process that loads, for each request.
    pub(crate) loader_cpu_micros: Option<f64>,
    /// The share of the machine's CPUs that was used by neither.
    pub(crate) share_of_others: Option<f64>,
    /// Requests of the lead-in.
    #[serde(default)]
    pub(crate) led_in: u64,
    /// Round trips to the store's server for each request, those of the lead-in among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trips: Option<f64>,
}

impl Measured {
    /// The CPU time of a process, for each of what was counted.
    pub(crate) fn micros_each(&self, cpu: Option<Duration>) -> Option<f64> {
        Some(cpu?.as_secs_f64() * 1e6 / self.count.max(1) as f64)
    }

    /// Notes what others used, which is all but this turn's processes.
    pub(crate) fn set_share_of_others(&mut self, share_of_machine: Option<f64>) {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let own_micros = self.cpu_micros.unwrap_or(0.0) + self.loader_cpu_micros.unwrap_or(0.0);
        let own_share = own_micros / 1e6 * self.per_second / cpus as f64;
        self.share_of_others = share_of_machine.map(|share| (share - own_share).max(0.0));
    }
}

/// Latencies and failures of a turn, while it goes on.
pub(crate) struct Recorder {
    latencies: Histogram<u64>,
    failed: u64,
}

impl Recorder {
    pub(crate) fn new() -> Result<Self> {
        // Nanoseconds up to a minute, to 1 %: small enough to stay in the CPU's cache.
        let latencies = Histogram::new_with_bounds(1, 60_000_000_000, 2)?;
        Ok(Self {
            latencies,
            failed: 0,
        })
    }

    pub(crate) fn record(&mut self, latency: Duration, is_answered: bool) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latencies.saturating_record(nanos.max(1));
        self.failed += u64::from(!is_answered);
    }

    pub(crate) fn count(&self) -> u64 {
        self.latencies.len()
    }

    pub(crate) fn add(&mut self, other: &Self) -> Result<()> {
        self.latencies.add(&other.latencies)?;
        self.failed += other.failed;
        Ok(())
    }

    pub(crate) fn finish(&self, elapsed: Duration) -> Measured {
        let micros = |quantile| self.latencies.value_at_quantile(quantile) as f64 / 1e3;
        Measured {
            count: self.count(),
            failed: self.failed,
            per_second: self.count() as f64 / elapsed.as_secs_f64(),
            p50_micros: micros(0.5),
            p99_micros: micros(0.99),
            cpu_micros: None,
            loader_cpu_micros: None,
            share_of_others: None,
            led_in: 0,
            trips: None,
        }
    }
}
