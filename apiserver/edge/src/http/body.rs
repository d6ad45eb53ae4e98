//! Request bodies, read whole up to the limit, and given up where they trickle.

use axum::body::Body;
use bytes::Bytes;
use coracle_api::ApiError;
use coracle_registry::decode::MAX_BODY_BYTES;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::json;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// A body under way holds the seats of its request, so it has to come on: in each of these times it brings
/// [`PACE_BYTES`] or its end. TCP's first repetitions fit.
const PACE_WINDOW: Duration = Duration::from_secs(5);

/// 6.4 KiB a second, a telephone line. An object of usual size is smaller, and arrives in one such time on any line.
const PACE_BYTES: usize = 32 << 10;

/// After its time a body is looked at once more: where this process or its machine stood still, what has come meanwhile is
/// still to be read.
const GRACE_PERIOD: Duration = Duration::from_millis(500);

/// 413 over the limit, before anything is read if the client announces it; 504 for a body that does not come on.
pub async fn read(body: Body) -> Result<Bytes, ApiError> {
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(ApiError::too_large(MAX_BODY_BYTES));
    }
    match Limited::new(Paced::new(body), MAX_BODY_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::too_large(MAX_BODY_BYTES)),
        Err(error) if error.is::<TooSlow>() => {
            Err(ApiError::timeout(error.to_string()).with_details(json!({})))
        }
        Err(error) => Err(ApiError::bad_request(format!("unable to read the request body: {error}"))),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("Timeout: the request body did not come on: less than {PACE_BYTES} bytes in {} s", PACE_WINDOW.as_secs())]
struct TooSlow;

/// A body with a pace to keep. It has no timer until it first keeps somebody waiting.
struct Paced {
    body: Body,
    bytes: usize,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether its time is over and the grace runs.
    late: bool,
}

impl Paced {
    fn new(body: Body) -> Self {
        Self { body, bytes: 0, timer: None, late: false }
    }

    fn poll_pace(&mut self, context: &mut Context<'_>) -> Poll<TooSlow> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(PACE_WINDOW)));
        while timer.as_mut().poll(context).is_ready() {
            let enough = self.bytes >= PACE_BYTES;
            if !enough && self.late {
                return Poll::Ready(TooSlow);
            }
            self.late = !enough;
            if enough {
                self.bytes = 0;
            }
            timer.as_mut().reset(Instant::now() + if enough { PACE_WINDOW } else { GRACE_PERIOD });
        }
        Poll::Pending
    }
}

impl http_body::Body for Paced {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => {
                if let Some(Ok(frame)) = &frame {
                    self.bytes += frame.data_ref().map_or(0, Bytes::len);
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => self.poll_pace(context).map(|slow| Some(Err(slow.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;

    /// A body of pieces, each after a pause.
    fn pieces(count: usize, bytes: usize, pause: Duration) -> Body {
        Body::from_stream(stream::unfold(0, move |n| async move {
            tokio::time::sleep(pause).await;
            (n < count).then(|| (Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; bytes])), n + 1))
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_has_to_come_on() {
        let began = Instant::now();
        let error = read(pieces(1000, 100, Duration::from_secs(1))).await.expect_err("it trickles");
        assert_eq!((error.code, error.reason), (504, "Timeout"));
        assert_eq!(error.message, "Timeout: the request body did not come on: less than 32768 bytes in 5 s");
        assert_eq!(began.elapsed().as_secs(), 5);
        // Three quarters of it in time do not help the rest.
        let stalls = pieces(30, 100_000, Duration::from_millis(100));
        let stalls = Body::from_stream(stream::select(
            stalls.into_data_stream(),
            stream::once(async {
                tokio::time::sleep(Duration::from_secs(60)).await;
                Ok(Bytes::new())
            }),
        ));
        let began = Instant::now();
        assert_eq!(read(stalls).await.expect_err("it stalls").code, 504);
        assert_eq!(began.elapsed().as_secs(), 10);
    }

    #[tokio::test]
    async fn what_came_while_the_process_stood_still_counts() {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let body = Body::from_stream(pieces_of(receiver));
        let mut paced = Paced::new(body);
        let mut frame = std::pin::pin!(async { paced.frame().await });
        // Nobody has come round to hand the piece on when the timer is looked at.
        tokio::time::pause();
        assert!(futures::poll!(&mut frame).is_pending());
        tokio::time::advance(PACE_WINDOW + Duration::from_millis(1)).await;
        assert!(futures::poll!(&mut frame).is_pending());
        sender.send(Ok(Bytes::from_static(b"here"))).await.expect("taken");
        let frame = frame.await.expect("a frame").expect("in time");
        assert_eq!(frame.into_data().expect("data"), "here");
    }

    fn pieces_of(
        mut receiver: tokio::sync::mpsc::Receiver<std::io::Result<Bytes>>,
    ) -> impl futures::Stream<Item = std::io::Result<Bytes>> {
        stream::poll_fn(move |context| receiver.poll_recv(context))
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_line_is_quick_enough() {
        let body = read(pieces(50, 16_384, Duration::from_secs(2))).await.expect("it comes on");
        assert_eq!(body.len(), 50 * 16_384);
        let late = read(pieces(1, 300, Duration::from_secs(2))).await;
        assert_eq!(late.map(|b| b.len()), Ok(300));
        let long = read(pieces(400, 16_384, Duration::ZERO)).await;
        assert_eq!(long.expect_err("more than 3 MiB").code, 413);
    }
}
