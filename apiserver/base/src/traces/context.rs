//! Which trace a request belongs to (<https://www.w3.org/TR/trace-context/>).

use coracle_api::hex;
use http::HeaderValue;

/// The header that carries it.
pub const HEADER: &str = "traceparent";

/// A span of a trace, as its header names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    /// Whether whoever began the trace wants it kept.
    pub sampled: bool,
}

impl Context {
    /// `None` for what is no such header; later versions are read as the first, as the recommendation asks.
    pub fn parse(header: &HeaderValue) -> Option<Self> {
        let text = header.to_str().ok()?;
        let mut fields = text.split('-');
        let version: [u8; 1] = bytes(fields.next()?)?;
        let (trace, span) = (bytes(fields.next()?)?, bytes(fields.next()?)?);
        let [flags] = bytes(fields.next()?)?;
        let surplus = fields.next().is_some();
        let is_wrong = version == [0xff] || (version == [0] && surplus) || trace == [0; 16] || span == [0; 8];
        (!is_wrong).then_some(Self { trace, span, sampled: flags & 1 == 1 })
    }

    /// As it is sent on.
    pub fn header(&self) -> HeaderValue {
        let flags = if self.sampled { "01" } else { "00" };
        let text = format!("00-{}-{}-{flags}", hex::text(&self.trace), hex::text(&self.span));
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
    }

    /// The trace as logs show it.
    pub fn trace_id(&self) -> String {
        hex::text(&self.trace)
    }
}

/// Exactly `N` bytes in lower-case hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != N * 2 || !text.bytes().all(is_digit) {
        return None;
    }
    let mut out = [0; N];
    for (at, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(out)
}

tokio::task_local! {
    static CURRENT: HeaderValue;
}

/// Does work whose calls to others belong to the trace of this header.
pub async fn within<F: Future>(header: Option<HeaderValue>, work: F) -> F::Output {
    match header {
        Some(header) => CURRENT.scope(header, work).await,
        None => work.await,
    }
}

/// What to send along with a call to somebody else.
pub fn current() -> Option<HeaderValue> {
    CURRENT.try_with(Clone::clone).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_and_written() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = Context::parse(&HeaderValue::from_static(text)).unwrap();
        assert_eq!((context.sampled, context.trace_id().as_str()), (true, &text[3..35]));
        assert_eq!(context.header(), text);
        let later = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more";
        assert!(Context::parse(&HeaderValue::from_static(later)).is_some_and(|context| !context.sampled));
    }

    #[test]
    fn nonsense_is_no_trace() {
        for text in [
            "",
            "nonsense",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        ] {
            assert_eq!(Context::parse(&HeaderValue::from_static(text)), None, "{text}");
        }
    }

    #[tokio::test]
    async fn calls_belong_to_the_trace_of_their_request() {
        let header = HeaderValue::from_static("h");
        assert_eq!(within(Some(header.clone()), async { current() }).await, Some(header));
        assert_eq!(within(None, async { current() }).await, None);
    }
}
