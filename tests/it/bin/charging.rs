//! What a process does that charges one key: it waits until it is told to, and says what it was told.

use std::io::{self, BufRead, Write};

use tollgate::{Key, Limiter};

/// Says `ready`, waits for a line, charges `user:alice` so often in each of so many tasks, and says `admitted` for each charge
/// that was, when it has the answer.
pub(crate) async fn charge_when_told<F>(
    limiter: &Limiter,
    tasks: u32,
    charges: u32,
    charge: fn(Limiter, Key) -> F,
) -> io::Result<()>
where
    F: Future<Output = io::Result<bool>> + Send + 'static,
{
    say("ready")?;
    io::stdin().lock().read_line(&mut String::new())?;
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let key = Key::new("user", "alice");
                for _ in 0..charges {
                    if charge(limiter.clone(), key.clone()).await? {
                        say("admitted")?;
                    }
                }
                Ok::<_, io::Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

pub(crate) fn say(word: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{word}")?;
    out.flush()
}
