//! Work that takes a processor for long, beside the threads that answer requests.

use tokio::runtime::{Handle, RuntimeFlavor};

/// From here on: about a millisecond of reading JSON or packing with gzip, and some of YAML. What is smaller would wait longer
/// for its turn than it takes.
pub const LARGE_BYTES: usize = 32 << 10;

/// Hands the thread's other tasks to another one before it works. On a runtime of one thread, which tests have, there is no
/// other.
pub fn beside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
