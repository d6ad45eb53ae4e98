//! The end of streams on which nothing moves: exec, attach, port-forward, and whatever else was upgraded.

use crate::io::{Note, Noted};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Knows when a stream moved last. Clones are of one stream.
#[derive(Clone)]
pub struct Quiet(Arc<Mutex<Instant>>);

impl Default for Quiet {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl Quiet {
    /// Notes every byte that goes through `io`, in either direction.
    pub fn stamp<I>(&self, io: I) -> Stamped<I> {
        Noted::new(io, self.clone())
    }

    /// Returns once nothing has moved for so long. Zero is never.
    pub async fn lasts(&self, time: Duration) {
        if time.is_zero() {
            std::future::pending::<()>().await;
        }
        loop {
            let due = *self.0.lock() + time;
            if due <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
    }
}

impl Note for Quiet {
    fn read(&mut self, _bytes: usize) -> io::Result<()> {
        self.wrote(0);
        Ok(())
    }

    fn wrote(&mut self, _bytes: usize) {
        *self.0.lock() = Instant::now();
    }
}

/// One end of a stream.
pub type Stamped<I> = Noted<I, Quiet>;

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_quiet_from_its_last_byte_on() {
        let quiet = Quiet::default();
        let (mut far, near) = tokio::io::duplex(64);
        let mut near = quiet.stamp(near);
        let began = Instant::now();
        let talk = async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                far.write_all(b"x").await.expect("sent");
                near.read_u8().await.expect("received");
            }
        };
        tokio::join!(talk, quiet.lasts(Duration::from_secs(60)));
        assert_eq!(began.elapsed().as_secs(), 310);
    }

    #[tokio::test(start_paused = true)]
    async fn zero_is_never() {
        let quiet = Quiet::default();
        let ended = tokio::time::timeout(Duration::from_secs(86_400), quiet.lasts(Duration::ZERO)).await;
        assert!(ended.is_err());
    }
}
