//! The processes: each in its place, where another one takes over when it is killed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use crate::processes::example;

/// What a process has said, or that it has ended.
pub(super) enum Said {
    Line(String),
    End,
}

pub(super) struct Fleet {
    arguments: Vec<String>,
    places: Vec<Process>,
    ears: Sender<(u64, Said)>,
    said: Receiver<(u64, Said)>,
    /// How many were started, and how many of them have ended.
    started: u64,
    ended: u64,
}

struct Process {
    number: u64,
    child: Child,
    commands: ChildStdin,
}

impl Fleet {
    /// Starts a process for each place.
    pub(super) fn start(arguments: Vec<String>, places: usize) -> Self {
        let (ears, said) = mpsc::channel();
        let mut fleet = Self {
            arguments,
            places: Vec::new(),
            ears,
            said,
            started: 0,
            ended: 0,
        };
        for _ in 0..places {
            let process = fleet.spawn();
            fleet.places.push(process);
        }
        fleet
    }

    fn spawn(&mut self) -> Process {
        let mut child = Command::new(example("contender"))
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        self.started += 1;
        let (number, out) = (self.started, child.stdout.take().unwrap());
        let ears = self.ears.clone();
        thread::spawn(move || listen(number, out, &ears));
        Process {
            number,
            commands: child.stdin.take().unwrap(),
            child,
        }
    }

    /// Tells the process in a place what to do. It need not be ready yet.
    pub(super) fn tell(&mut self, place: usize, command: &str) {
        // One that has failed says so by its end.
        let _ = self.places[place].commands.write_all(command.as_bytes());
    }

    /// Kills the process in a place. What it has said is still heard.
    pub(super) fn kill(&mut self, place: usize) {
        let child = &mut self.places[place].child;
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts another process in the place of one that was killed.
    pub(super) fn replace(&mut self, place: usize) {
        self.places[place] = self.spawn();
    }

    /// What is said next, and by the process in which place; by none that is there now when it has been replaced.
    pub(super) fn hear(&mut self) -> (Option<usize>, Said) {
        let (number, said) = self.said.recv().unwrap();
        if matches!(said, Said::End) {
            self.ended += 1;
        }
        let mut places = self.places.iter();
        (places.position(|process| process.number == number), said)
    }

    /// Whether all has been heard that was said.
    pub(super) fn is_over(&self) -> bool {
        self.ended == self.started
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for process in &mut self.places {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

fn listen(number: u64, out: ChildStdout, ears: &Sender<(u64, Said)>) {
    for line in BufReader::new(out).lines() {
        // Nobody hears it any more when a test has failed.
        let _ = ears.send((number, Said::Line(line.unwrap())));
    }
    let _ = ears.send((number, Said::End));
}
