//! Reading files and disks, which may take long.

/// Does the work on a thread that may block. `None` if it panics, which is said in the log: then nothing is known.
pub async fn reading<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(read) => Some(read),
        Err(error) => {
            tracing::error!(what, %error, "not read");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_panics_reads_nothing() {
        assert_eq!(reading("a number", || 7).await, Some(7));
        assert_eq!(reading("a number", || -> i32 { panic!("on purpose") }).await, None);
    }
}
