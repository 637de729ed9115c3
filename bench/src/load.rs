//! The client: keep-alive connections on one thread, each with one request under way at any time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use mio::{Events, Interest, Poll, Token};

use crate::cpu;
use crate::keys::{self, Keys, Picker};
use crate::measured::Recorder;
use crate::response;

/// Several times what a server here answers.
const BUFFER_LENGTH: usize = 4_096;
/// A server that is silent for so long has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// How to load.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Load {
    #[arg(long)]
    pub(crate) connections: usize,
    #[arg(long)]
    pub(crate) seconds: f64,
    /// The status that each answer should have.
    #[arg(long, default_value_t = 200)]
    pub(crate) expected: u16,
    /// Makes a request of each key before it begins.
    #[arg(long)]
    pub(crate) uses_up: bool,
}

/// Loads the server at `address` for so long, and prints a line of JSON: what it [`Measured`](crate::measured::Measured).
pub(crate) fn run(address: SocketAddr, keys: Keys, load: Load) -> Result<()> {
    let requests = requests(keys);
    let Load {
        connections,
        seconds,
        expected,
        uses_up,
    } = load;
    if uses_up {
        use_up(address, &requests)?;
    }
    let mut poll = Poll::new()?;
    let mut connections = (0..connections)
        .map(|index| Connection::open(address, index, requests.len(), &poll))
        .collect::<Result<Vec<_>>>()?;
    let mut recorder = Recorder::new()?;
    let mut events = Events::with_capacity(connections.len());

    let cpu = cpu::Watch::this_process();
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    for connection in &mut connections {
        connection.send(&requests)?;
    }
    let mut now = start;
    while now < end {
        match poll.poll(&mut events, Some(PATIENCE)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        }
        ensure!(!events.is_empty(), "the server is silent");
        for event in &events {
            let connection = &mut connections[event.token().0];
            let Some(status) = connection.receive()? else {
                continue;
            };
            now = Instant::now();
            recorder.record(now - connection.sent_at, status == expected);
            connection.sent_at = now;
            connection.send(&requests)?;
        }
    }
    let mut measured = recorder.finish(now - start);
    measured.loader_cpu_micros = measured.micros_each(cpu.used().by_process);
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// Uses up the quota of each key: one request.
fn use_up(address: SocketAddr, requests: &[Vec<u8>]) -> Result<()> {
    let mut stream = TcpStream::connect(address).context("the server can't be reached")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = [0; BUFFER_LENGTH];
    for request in requests {
        stream.write_all(request)?;
        let mut filled = 0;
        while response::complete(&buffer[..filled]).is_none() {
            let length = stream.read(&mut buffer[filled..])?;
            ensure!(length > 0, "the server has closed a connection");
            filled += length;
        }
    }
    Ok(())
}

/// The bytes of a request for each key.
fn requests(keys: Keys) -> Vec<Vec<u8>> {
    let request = |key: String| {
        let header = keys::HEADER;
        format!("GET / HTTP/1.1\r\nhost: localhost\r\n{header}: {key}\r\n\r\n").into_bytes()
    };
    keys.values().into_iter().map(request).collect()
}

struct Connection {
    stream: mio::net::TcpStream,
    picker: Picker,
    sent_at: Instant,
    buffer: Box<[u8; BUFFER_LENGTH]>,
    filled: usize,
}

impl Connection {
    fn open(address: SocketAddr, index: usize, keys: usize, poll: &Poll) -> Result<Self> {
        let stream = TcpStream::connect(address).context("the server can't be reached")?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = mio::net::TcpStream::from_std(stream);
        poll.registry()
            .register(&mut stream, Token(index), Interest::READABLE)?;
        Ok(Self {
            stream,
            picker: Picker::new(index, keys),
            sent_at: Instant::now(),
            buffer: Box::new([0; BUFFER_LENGTH]),
            filled: 0,
        })
    }

    fn send(&mut self, requests: &[Vec<u8>]) -> Result<()> {
        let request = &requests[self.picker.pick()];
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
