//! Nodes on one server, each a process of its own whose clock shows something else: never over the limit, and exactly the limit
//! when all is given back.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::processes::example;
use crate::servers::RunningServer;
use crate::support::Server;

/// Makes the tests, on servers of a kind.
macro_rules! tests_on {
    ($server:ty) => {
        $crate::server_nodes::tests_on!($server;
            eight_nodes_without_leases_get_exactly_the_limit_of_each_algorithm,
            eight_nodes_that_lease_get_the_limit_and_no_more,
            nodes_that_are_killed_take_no_more_than_they_were_given,
            a_server_that_is_killed_under_load_loses_nothing_that_was_admitted,
            a_server_that_stands_still_is_given_up_and_admits_no_more_when_it_goes_on,
        );

        #[tokio::test]
        async fn two_services_on_one_server_share_a_limit() {
            $crate::server_nodes::two_services_on_one_server_share_a_limit::<$server>().await;
        }
    };
    ($server:ty; $($test:ident,)*) => { $(
        #[test]
        fn $test() {
            $crate::server_nodes::$test::<$server>();
        }
    )* };
}
pub(crate) use tests_on;

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
/// By how much the clocks of the nodes are off, in hours.
const SKEWS: [i64; 8] = [0, 1, -1, 5, -23, 48, 0, 1];

/// One of each algorithm, whose windows last for the test.
const POLICIES: [&str; 6] = [
    "fixed:200:86400",
    "sliding:200:86400",
    "sliding-counter:200:86400",
    "token-bucket:1:86400:200",
    "daily:200",
    "monthly:200",
];

/// A process that charges the key `user:alice`; see `bin/server_node.rs`.
struct Node {
    child: Child,
    out: BufReader<ChildStdout>,
}

/// What a node was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    admitted: usize,
    failed: usize,
}

impl Node {
    fn start(
        server: &impl RunningServer,
        policies: &str,
        skew: i64,
        charges: u32,
        options: &[&str],
    ) -> Self {
        let mut child = Command::new(example("server_node"))
            .args([&server.url(), policies])
            .args([skew * HOUR, offset_to_noon()].map(|millis| millis.to_string()))
            .args(["16", &charges.to_string()])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, out }
    }

    fn go(&mut self) {
        self.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }

    /// What it was told until it ended, or was killed.
    fn told(mut self, must_succeed: bool) -> Told {
        let mut told = Told::default();
        for line in (&mut self.out).lines().map(Result::unwrap) {
            match &*line {
                "admitted" => told.admitted += 1,
                _ => told.failed += 1,
            }
        }
        assert!(self.child.wait().unwrap().success() || !must_succeed);
        told
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How far the server's clock is moved, so that no day ends during a test: it is noon there.
fn offset_to_noon() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "no test hangs on what it shows")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_millis()).unwrap();
    let noon = now - now % DAY + DAY / 2;
    // On the hour: nodes that are started a little later see the same day all the same.
    (noon - now) / HOUR * HOUR
}

fn nodes(server: &impl RunningServer, policies: &str, charges: u32, options: &[&str]) -> Vec<Node> {
    let skews = SKEWS.into_iter();
    let mut nodes: Vec<_> = skews
        .map(|skew| Node::start(server, policies, skew, charges, options))
        .collect();
    nodes.iter_mut().for_each(Node::go);
    nodes
}

/// What a node gets that comes when the others have given back what they had leased.
fn rest(server: &impl RunningServer, policies: &str) -> usize {
    let mut last = Node::start(server, policies, -1, 20, &["unleased"]);
    last.go();
    last.told(true).admitted
}

pub(crate) fn eight_nodes_without_leases_get_exactly_the_limit_of_each_algorithm<
    S: RunningServer,
>() {
    for policies in POLICIES {
        let server = S::start();
        let nodes = nodes(&server, policies, 5, &["unleased"]);
        let told = nodes.into_iter().map(|node| node.told(true));
        let admitted: usize = told.map(|told| told.admitted).sum();
        assert_eq!(admitted, 200, "{policies}");
        assert_eq!(rest(&server, policies), 0, "{policies}");
    }
}

pub(crate) fn eight_nodes_that_lease_get_the_limit_and_no_more<S: RunningServer>() {
    for policies in POLICIES {
        let server = S::start();
        let nodes = nodes(&server, policies, 5, &[]);
        let told = nodes.into_iter().map(|node| node.told(true));
        let admitted: usize = told.map(|told| told.admitted).sum();
        assert!(admitted <= 200, "{policies}: {admitted}");
        assert_eq!(admitted + rest(&server, policies), 200, "{policies}");
    }
}

pub(crate) fn nodes_that_are_killed_take_no_more_than_they_were_given<S: RunningServer>() {
    for policies in POLICIES {
        let server = S::start();
        let mut nodes = nodes(&server, policies, 1_000, &[]);
        for node in &mut nodes[..4] {
            // Each has been told something by then.
            let mut line = String::new();
            node.out.read_line(&mut line).unwrap();
            node.child.kill().unwrap();
        }
        let told = nodes.into_iter().map(|node| node.told(false));
        // The line that was read is of one that was admitted, or there was nothing left.
        let admitted: usize = told.map(|told| told.admitted).sum();
        let all = admitted + rest(&server, policies);
        assert!(all <= 200, "{policies}: {all}");
        // What the killed ones had leased is lost until the window ends: three sixteenths each at the most.
        assert!(all + 4 * 38 + 4 * 16 + 4 >= 200, "{policies}: {all}");
    }
}

pub(crate) fn a_server_that_is_killed_under_load_loses_nothing_that_was_admitted<
    S: RunningServer,
>() {
    for is_leased in [false, true] {
        let mut server = S::start_durable();
        let options = if is_leased { &[][..] } else { &["unleased"] };
        let nodes = nodes(&server, "daily:20000", 200, options);
        for _ in 0..3 {
            server.restart();
        }
        let told = nodes.into_iter().map(|node| node.told(true));
        let told = told.fold(Told::default(), |sum, told| Told {
            admitted: sum.admitted + told.admitted,
            failed: sum.failed + told.failed,
        });
        assert!(told.admitted <= 20_000, "{told:?}");
        // Each charge was admitted in the end, unless those in doubt have used the limit up; what a call in doubt had charged ahead
        // is lost too.
        assert!(
            is_leased || told.admitted + told.failed >= 20_000,
            "{told:?}"
        );
    }
}

pub(crate) fn a_server_that_stands_still_is_given_up_and_admits_no_more_when_it_goes_on<
    S: RunningServer,
>() {
    let server = S::start();
    let policies = "sliding:2000:86400";
    let mut nodes = nodes(&server, policies, 100, &["impatient"]);
    server.pause();
    let mut line = String::new();
    while line != "failed\n" {
        line.clear();
        assert!(
            nodes[0].out.read_line(&mut line).unwrap() > 0,
            "it has ended"
        );
    }
    server.resume();
    let told = nodes.into_iter().map(|node| node.told(true));
    let admitted: usize = told.map(|told| told.admitted).sum();
    assert!(admitted <= 2_000, "{admitted}");
}

pub(crate) async fn two_services_on_one_server_share_a_limit<S: RunningServer>() {
    let server = S::start();
    let url = server.url();
    let [example, variable] = S::SERVICE;
    let services = [(); 2].map(|()| Server::start_with(example, &[(variable, &url)]));
    let mut allowed = 0;
    for turn in 0..8 {
        let url = format!("{}/login", services[turn % 2].url);
        let response = reqwest::Client::new().post(url).send().await.unwrap();
        allowed += usize::from(response.status().is_success());
        assert!(response.headers().contains_key("ratelimit"));
    }
    assert_eq!(allowed, 5);
}
