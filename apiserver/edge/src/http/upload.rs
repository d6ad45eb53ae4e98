//! The body of a request that writes: read before the request is worked on, within its time, and without seats once it
//! keeps them waiting.

use super::request_context::RequestContext;
use super::{body, large, limits};
use crate::flowcontrol;
use crate::http::ServerState;
use axum::body::Body;
use coracle_api::{ApiError, UserInfo};
use coracle_listen::Turns;
use http::Request;
use http::header::CONTENT_TYPE;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long a request waits for its body in its seat. A body that is sent right behind its head is there by then; seats are
/// few, and somebody who sends heads alone would hold them all.
const SEATED_TIMEOUT: Duration = Duration::from_millis(100);

/// Bodies that wait without a seat, all and of one user: each may be 3 MiB, so these are 200 MB and 25 MB at the most.
const WAITING: (usize, usize) = (64, 8);

static BODIES: LazyLock<Arc<Turns<String>>> = LazyLock::new(|| Turns::new(WAITING.0, WAITING.1));

/// The request with its body in memory, recorded if the audit log wants it. Bodies for other servers that nobody records
/// pass as they come.
///
/// # Errors
/// A body that is too large, too slow or not there at `end`; 429 for too many of one user that are slow.
pub(super) async fn whole(
    server: &ServerState,
    context: &mut RequestContext,
    user: &UserInfo,
    request: Request<Body>,
    end: Instant,
) -> Result<Request<Body>, ApiError> {
    let writes = matches!(context.info.verb, "create" | "update" | "patch" | "delete" | "deletecollection");
    let recorded = context.record.as_ref().is_some_and(|record| record.wants_request());
    if !writes || (context.served.is_none() && !recorded) {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    let mut reading = std::pin::pin!(body::read(body));
    let soon = end.min(Instant::now() + SEATED_TIMEOUT);
    let bytes = match timeout_at(soon, reading.as_mut()).await {
        Ok(read) => read?,
        Err(_) => {
            context.seats.leave();
            let turn = BODIES.take(user.name.clone()).ok_or_else(flowcontrol::too_many)?;
            let bytes = timeout_at(end, reading).await.map_err(|_| limits::timed_out())??;
            drop(turn);
            context.seats.again(server, &context.info).await?;
            bytes
        }
    };
    if let Some(record) = context.record.as_mut().filter(|_| recorded) {
        let kind = parts.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let whose = (server, &context.info, &context.seats);
        large::read(whose, bytes.len(), || record.request_object(kind, &bytes)).await?;
    }
    Ok(Request::from_parts(parts, Body::from(bytes)))
}
