//! How the server and a command on its machine talk: the request is one line, the answer is frames.
//!
//! ```text
//! D | length u32 | bytes      more of the answer
//! E | length u32 | text       it failed, and why
//! Z | 0                       it is whole
//! ```
//! An answer without its last frame was cut off.

use std::io::{self, Read, Write};

const DATA: u8 = b'D';
const FAILED: u8 = b'E';
const WHOLE: u8 = b'Z';
/// What is sent at a time: as much as a socket takes at once.
const PIECE: usize = 64 << 10;

pub struct FrameWriter<W: Write> {
    out: W,
    waiting: Vec<u8>,
}

impl<W: Write> FrameWriter<W> {
    pub fn new(out: W) -> Self {
        Self { out, waiting: Vec::with_capacity(PIECE) }
    }

    fn frame(out: &mut W, tag: u8, bytes: &[u8]) -> io::Result<()> {
        let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        out.write_all(&[tag])?;
        out.write_all(&len.to_le_bytes())?;
        out.write_all(bytes)
    }

    /// Says how it went. Nobody may be there any more.
    pub fn end(mut self, done: Result<(), String>) -> io::Result<()> {
        match done {
            Ok(()) => {
                self.flush()?;
                Self::frame(&mut self.out, WHOLE, &[])
            }
            Err(why) => Self::frame(&mut self.out, FAILED, why.as_bytes()),
        }
    }
}

impl<W: Write> Write for FrameWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE - self.waiting.len());
        self.waiting.extend_from_slice(&bytes[..taken]);
        if self.waiting.len() == PIECE {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.waiting.is_empty() {
            Self::frame(&mut self.out, DATA, &self.waiting)?;
            self.waiting.clear();
        }
        Ok(())
    }
}

/// The bytes of an answer; its end only if it is whole.
pub struct FrameReader<R: Read> {
    input: R,
    left: usize,
    ended: bool,
}

impl<R: Read> FrameReader<R> {
    pub fn new(input: R) -> Self {
        Self { input, left: 0, ended: false }
    }

    fn next(&mut self) -> io::Result<()> {
        let mut head = [0; 5];
        self.input.read_exact(&mut head).map_err(cut_off)?;
        let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        match head[0] {
            DATA => self.left = len,
            WHOLE => self.ended = true,
            _ => {
                let mut text = vec![0; len.min(PIECE)];
                self.input.read_exact(&mut text).map_err(cut_off)?;
                return Err(io::Error::other(String::from_utf8_lossy(&text).into_owned()));
            }
        }
        Ok(())
    }
}

fn cut_off(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(io::ErrorKind::ConnectionAborted, "the server ended before its answer did")
        }
        _ => error,
    }
}

impl<R: Read> Read for FrameReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.left == 0 && !self.ended {
            self.next()?;
        }
        let wanted = bytes.len().min(self.left);
        if wanted == 0 {
            return Ok(0);
        }
        let read = self.input.read(&mut bytes[..wanted])?;
        if read == 0 {
            return Err(cut_off(io::ErrorKind::UnexpectedEof.into()));
        }
        self.left -= read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(done: Result<(), String>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut out = FrameWriter::new(&mut bytes);
        out.write_all(&vec![7; PIECE + 5]).expect("written");
        out.end(done).expect("an end");
        bytes
    }

    fn read(bytes: &[u8]) -> io::Result<usize> {
        FrameReader::new(bytes).read_to_end(&mut Vec::new())
    }

    #[test]
    fn an_answer_is_whole_or_an_error() {
        let whole = answer(Ok(()));
        assert_eq!(read(&whole).expect("whole"), PIECE + 5);
        let failed = read(&answer(Err("the disk is full".to_owned()))).expect_err("it failed");
        assert_eq!(failed.to_string(), "the disk is full");
        for at in [0, 3, 100, whole.len() - 5, whole.len() - 1] {
            let cut = read(&whole[..at]).expect_err("cut off");
            assert_eq!(cut.kind(), io::ErrorKind::ConnectionAborted, "at {at}");
        }
    }
}
