//! A tree as a stream of bytes, and a tree of such a stream. The same tree is the same bytes, on whatever file system it
//! lies: so a copy is known to be one by being sent once more.
//!
//! A stream is a row of frames: one byte that says what it is, the length of what follows (u32, little endian), and that.
//! The root's frame comes first, then what is in it by name; a directory's frame is followed by what is in it and by one
//! that leaves it; a file's by its blocks. The last frame says how much there was, with a digest of all before it.

mod attributes;
mod frames;
mod receive;
mod send;
#[cfg(test)]
mod tests;

pub use receive::{ReceiveError, begins, receive};
pub use send::{Sent, refuse, send};

use super::MAX_DEPTH;

/// What a frame is of.
mod kind {
    pub const ROOT: u8 = b'R';
    pub const DIRECTORY: u8 = b'D';
    /// The directory that was entered last is left.
    pub const LEAVE: u8 = b'U';
    pub const FILE: u8 = b'F';
    /// Content of the file that came last.
    pub const BLOCK: u8 = b'B';
    /// A symbolic link.
    pub const LINK: u8 = b'L';
    /// One more name of a file that came before.
    pub const NAME: u8 = b'H';
    pub const END: u8 = b'E';
    /// In the end's place: why there will be none.
    pub const FAILED: u8 = b'X';
}

/// Bytes of a file that are sent at a time, and looked at for being zeros: such blocks are left out, and are holes in the
/// copy. A power of two. Smaller, and a file is many frames; larger, and a hole has to be larger to be one.
const BLOCK: usize = 64 << 10;
