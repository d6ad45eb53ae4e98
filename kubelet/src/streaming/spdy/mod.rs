//! SPDY/3.1 as Kubernetes' streaming protocols use it: framing, header compression and sessions of either role.
//!
//! The peers that matter (the streaming servers of containerd and CRI-O, kubectl without WebSockets) keep no flow
//! control windows and never send SETTINGS. So nothing here waits for a window; back-pressure is TCP's, and a session
//! that is not read holds its peer back. Nor is WINDOW_UPDATE sent: those peers close the connection right after
//! their last byte, and bytes that they have not read by then make the kernel reset it, which can cost us that byte.

mod dictionary;
mod frame;
mod headers;
mod session;

pub use frame::{Decoder, Encoder, Frame, ResetStatus};
pub use headers::Headers;
pub use session::{Receiver, Role, Sender, session};

/// What a peer did wrong, or what broke underneath. All of them end the session.
#[derive(Debug, thiserror::Error)]
pub enum SpdyError {
    #[error("control frame of {0} bytes is over the limit")]
    FrameTooLarge(usize),
    #[error("malformed frame of type {0}")]
    Malformed(u16),
    #[error("SPDY version {0} is not 3")]
    Version(u16),
    #[error("header block does not decompress")]
    Compression,
    #[error("headers of more than {0} bytes")]
    HeadersTooLarge(usize),
    #[error("the session has no more stream ids")]
    StreamsExhausted,
    #[error("the connection ended in the middle of a frame")]
    Truncated,
    #[error("connection")]
    Io(#[from] std::io::Error),
}

#[cfg(test)]
mod tests;
