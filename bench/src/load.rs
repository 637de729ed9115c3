//! The client: keep-alive connections on one thread, each with one request under way at any time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use mio::{Events, Interest, Poll, Token};

use crate::cpu;
use crate::keys::{self, Keys, Picker};
use crate::measured::{Measured, Recorder};
use crate::response;

/// Several times what a server here answers.
const BUFFER_LENGTH: usize = 4_096;
/// A server that is silent for so long has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// How to load.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Load {
    /// How many keys the requests are of.
    #[arg(long)]
    pub(crate) keys: u32,
    #[arg(long)]
    pub(crate) connections: usize,
    /// Seconds of the same load before anything is measured.
    #[arg(long)]
    pub(crate) lead_in: f64,
    #[arg(long)]
    pub(crate) seconds: f64,
    /// The status that each answer should have.
    #[arg(long)]
    pub(crate) expected: u16,
}

/// What is loaded.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Loaded {
    /// Servers, among which the connections are spread.
    #[arg(long = "address", required = true)]
    pub(crate) addresses: Vec<SocketAddr>,
    /// The processes whose CPU is that of the servers.
    #[arg(long = "process")]
    pub(crate) processes: Vec<u32>,
}

/// Loads for so long, and prints a line of JSON: what it [`Measured`].
pub(crate) fn run(loaded: &Loaded, load: Load) -> Result<()> {
    let mut client = Client::connect(&loaded.addresses, load)?;
    let mut now = client.begin()?;
    let lead_in = now + Duration::from_secs_f64(load.lead_in);
    let mut unmeasured = Recorder::new()?;
    now = client.go_on(now, lead_in, &mut unmeasured)?;

    let mut recorder = Recorder::new()?;
    let own_cpu = cpu::Watch::this_process();
    let cpu = cpu::Watch::processes(&loaded.processes);
    let start = now;
    now = client.go_on(
        now,
        start + Duration::from_secs_f64(load.seconds),
        &mut recorder,
    )?;
    let mut measured: Measured = recorder.finish(now - start);
    measured.led_in = unmeasured.count();
    let used = cpu.used();
    measured.cpu_micros = measured.micros_each(used.by_processes);
    measured.loader_cpu_micros = measured.micros_each(own_cpu.used().by_processes);
    measured.set_share_of_others(used.share_of_machine);
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// All connections, and what they send.
struct Client {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    request: Request,
    expected: u16,
}

impl Client {
    fn connect(addresses: &[SocketAddr], load: Load) -> Result<Self> {
        let keys = Keys::Of(load.keys);
        let poll = Poll::new()?;
        let connections = (0..load.connections)
            .map(|index| {
                let address = addresses[index % addresses.len()];
                Connection::open(address, index, keys, &poll)
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            poll,
            events: Events::with_capacity(connections.len()),
            connections,
            request: Request::new(keys),
            expected: load.expected,
        })
    }

    /// Sends a request on each connection.
    fn begin(&mut self) -> Result<Instant> {
        for connection in &mut self.connections {
            connection.sent_at = Instant::now();
            connection.send(&mut self.request)?;
        }
        Ok(Instant::now())
    }

    /// Goes on until `end`, with a request under way on each connection then as well, and gives the time of the last answer.
    fn go_on(
        &mut self,
        mut now: Instant,
        end: Instant,
        recorder: &mut Recorder,
    ) -> Result<Instant> {
        while now < end {
            match self.poll.poll(&mut self.events, Some(PATIENCE)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            ensure!(!self.events.is_empty(), "the server is silent");
            for event in &self.events {
                let connection = &mut self.connections[event.token().0];
                let Some(status) = connection.receive()? else {
                    continue;
                };
                now = Instant::now();
                recorder.record(now - connection.sent_at, status == self.expected);
                connection.sent_at = now;
                connection.send(&mut self.request)?;
            }
        }
        Ok(now)
    }
}

/// The bytes of a request, whose key is written in place: a million of them would be more than the CPU's cache holds.
struct Request {
    bytes: Vec<u8>,
    digits: Range<usize>,
}

impl Request {
    fn new(keys: Keys) -> Self {
        let (header, value) = (keys::HEADER, keys.value(0));
        let mut bytes =
            format!("GET / HTTP/1.1\r\nhost: localhost\r\n{header}: {value}").into_bytes();
        let digits = bytes.len() - keys.digits()..bytes.len();
        bytes.extend_from_slice(b"\r\n\r\n");
        Self { bytes, digits }
    }

    fn of(&mut self, mut index: usize) -> &[u8] {
        for digit in self.bytes[self.digits.clone()].iter_mut().rev() {
            *digit = b"0123456789"[index % 10];
            index /= 10;
        }
        &self.bytes
    }
}

struct Connection {
    stream: mio::net::TcpStream,
    picker: Picker,
    sent_at: Instant,
    buffer: Box<[u8; BUFFER_LENGTH]>,
    filled: usize,
}

impl Connection {
    fn open(address: SocketAddr, index: usize, keys: Keys, poll: &Poll) -> Result<Self> {
        let stream = TcpStream::connect(address).context("the server can't be reached")?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = mio::net::TcpStream::from_std(stream);
        poll.registry()
            .register(&mut stream, Token(index), Interest::READABLE)?;
        Ok(Self {
            stream,
            picker: Picker::new(index, keys.count() as usize),
            sent_at: Instant::now(),
            buffer: Box::new([0; BUFFER_LENGTH]),
            filled: 0,
        })
    }

    fn send(&mut self, request: &mut Request) -> Result<()> {
        let request = request.of(self.picker.pick());
        // Nothing else is on its way: there is room for all of it.
        let sent = self.stream.write(request)?;
        ensure!(sent == request.len(), "a request was sent in part");
        Ok(())
    }

    /// Reads once, and tells the status of the response when it is complete. More to come makes a new event.
    fn receive(&mut self) -> Result<Option<u16>> {
        match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => bail!("the server has closed a connection"),
            Ok(length) => self.filled += length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let received = &self.buffer[..self.filled];
        let Some(response) = response::complete(received) else {
            ensure!(self.filled < BUFFER_LENGTH, "a response is too long");
            return Ok(None);
        };
        ensure!(
            response.length == self.filled,
            "a response nobody asked for"
        );
        self.filled = 0;
        Ok(Some(response.status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_the_key_that_it_is_of() {
        for keys in [Keys::One, Keys::Many, Keys::Of(1_000_000)] {
            let mut request = Request::new(keys);
            for index in [0, keys.count() as usize - 1, keys.count() as usize / 3] {
                let text = String::from_utf8_lossy(request.of(index)).into_owned();
                let expected = format!("{}: {}\r\n\r\n", keys::HEADER, keys.value(index));
                assert!(text.ends_with(&expected), "{text}");
            }
        }
    }
}
