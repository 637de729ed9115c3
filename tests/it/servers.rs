//! Servers of their own for tests, whatever store is on them.

/// A server that ends when it is dropped.
pub(crate) trait RunningServer: Sized {
    /// The example that is a service on it, and the variable that gives it the URL.
    const SERVICE: [&str; 2];

    fn start() -> Self;

    /// One that has stored what it answers.
    fn start_durable() -> Self {
        Self::start()
    }

    fn url(&self) -> String;

    /// Kills it, and starts it again on what it had stored.
    fn restart(&mut self);

    /// Has it stand still.
    fn pause(&self);

    /// Has it go on.
    fn resume(&self);
}

#[cfg(feature = "postgres")]
impl RunningServer for crate::postgres::PostgresServer {
    const SERVICE: [&str; 2] = ["postgres", "DATABASE_URL"];

    fn start() -> Self {
        Self::start()
    }

    fn url(&self) -> String {
        self.url()
    }

    fn restart(&mut self) {
        self.kill();
        self.restart();
    }

    fn pause(&self) {
        self.pause();
    }

    fn resume(&self) {
        self.resume();
    }
}

#[cfg(all(feature = "redis", unix))]
impl RunningServer for crate::redis::RedisServer {
    const SERVICE: [&str; 2] = ["redis", "REDIS_URL"];

    fn start() -> Self {
        Self::start("")
    }

    fn start_durable() -> Self {
        Self::start("--appendonly yes --appendfsync always")
    }

    fn url(&self) -> String {
        self.url()
    }

    fn restart(&mut self) {
        self.restart();
    }

    fn pause(&self) {
        self.signal("STOP");
    }

    fn resume(&self) {
        self.signal("CONT");
    }
}
