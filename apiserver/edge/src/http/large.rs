//! Large bodies and answers: reading and making them takes milliseconds to seconds of a processor, so it is done beside the
//! threads that answer requests, by turns, and without a seat. Whoever sends much waits for nobody but others who do.

use super::RequestInfo;
use super::seats::Seats;
use crate::http::ServerState;
use coracle_api::ApiError;
pub use coracle_component_base::large_work::{LARGE_BYTES, beside};
use coracle_listen::Turns;
use std::sync::{Arc, LazyLock};

/// Half the processors are left to everybody else, and half of these to other users. Users have their turns one after the
/// other.
static TURNS: LazyLock<Arc<Turns<String>>> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let most = (processors / 2).max(1);
    Turns::new(most, most.div_ceil(2))
});

/// Work on so many bytes of a request, which goes on afterwards.
///
/// # Errors
/// 429 when there is no seat for it any more.
pub async fn read<T>(
    (server, info, seats): (&ServerState, &RequestInfo, &Seats),
    bytes: usize,
    work: impl FnOnce() -> T,
) -> Result<T, ApiError> {
    if bytes < LARGE_BYTES {
        return Ok(work());
    }
    let done = make(seats, bytes, work).await;
    seats.again(server, info).await?;
    Ok(done)
}

/// Work on so many bytes of an answer; nothing but sending it is left then.
pub async fn make<T>(seats: &Seats, bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LARGE_BYTES {
        return work();
    }
    seats.leave();
    let _turn = TURNS.wait(seats.user().to_owned()).await;
    beside(work)
}
