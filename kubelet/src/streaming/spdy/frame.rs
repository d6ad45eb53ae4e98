//! Frames on the wire (SPDY draft 3.1, section 2.2).

use super::headers::{Deflater, Inflater};
use super::{Headers, SpdyError};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Payload bytes of one control frame that are buffered. Header blocks of Kubernetes' streams take about 100.
const MAX_CONTROL: usize = 64 * 1024;

/// The most that the 24 bits of a length hold.
const MAX_DATA: usize = (1 << 24) - 1;

const HEADER: usize = 8;
const CONTROL: u32 = 0x8000_0000;
const STREAM: u32 = 0x7fff_ffff;
const FIN: u8 = 1;
const UNIDIRECTIONAL: u8 = 2;

/// Why a stream was reset (section 2.4.2); the codes used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ResetStatus {
    ProtocolError = 1,
    InvalidStream = 2,
    RefusedStream = 3,
    Cancel = 5,
    InternalError = 6,
}

/// One frame. Data comes in pieces as it arrives: only the last piece of a frame carries its `fin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    SynStream { id: u32, headers: Headers, fin: bool, unidirectional: bool },
    SynReply { id: u32, headers: Headers, fin: bool },
    Reset { id: u32, status: u32 },
    Settings,
    Ping { id: u32 },
    GoAway { last: u32, status: u32 },
    Headers { id: u32, headers: Headers, fin: bool },
    WindowUpdate { id: u32, delta: u32 },
    Data { id: u32, bytes: Bytes, fin: bool },
}

/// Writes the frames of one direction; holds its compression state.
pub struct Encoder(Deflater);

impl Encoder {
    pub fn new() -> Result<Self, SpdyError> {
        Deflater::new().map(Self)
    }

    /// Appends `frame` to `out`. Data longer than a frame holds becomes several.
    pub fn encode(&mut self, frame: &Frame, out: &mut BytesMut) -> Result<(), SpdyError> {
        match frame {
            Frame::SynStream { id, headers, fin, unidirectional } => {
                let block = self.0.compress(headers)?;
                let flags = if *fin { FIN } else { 0 } | if *unidirectional { UNIDIRECTIONAL } else { 0 };
                control(out, 1, flags, 10 + block.len())?;
                out.put_u32(*id);
                out.put_u32(0);
                out.put_u16(0);
                out.put_slice(&block);
            }
            Frame::SynReply { id, headers, fin } => self.block(2, *id, headers, *fin, out)?,
            Frame::Headers { id, headers, fin } => self.block(8, *id, headers, *fin, out)?,
            Frame::Reset { id, status } => pair(out, 3, *id, *status)?,
            Frame::GoAway { last, status } => pair(out, 7, *last, *status)?,
            Frame::WindowUpdate { id, delta } => pair(out, 9, *id, *delta)?,
            Frame::Settings => {
                control(out, 4, 0, 4)?;
                out.put_u32(0);
            }
            Frame::Ping { id } => {
                control(out, 6, 0, 4)?;
                out.put_u32(*id);
            }
            Frame::Data { id, bytes, fin } => data(*id, bytes, *fin, out),
        }
        Ok(())
    }

    fn block(
        &mut self,
        kind: u16,
        id: u32,
        headers: &Headers,
        fin: bool,
        out: &mut BytesMut,
    ) -> Result<(), SpdyError> {
        let block = self.0.compress(headers)?;
        control(out, kind, if fin { FIN } else { 0 }, 4 + block.len())?;
        out.put_u32(id);
        out.put_slice(&block);
        Ok(())
    }
}

fn length(flags: u8, length: usize) -> Result<u32, SpdyError> {
    if length > MAX_DATA {
        return Err(SpdyError::FrameTooLarge(length));
    }
    let length = u32::try_from(length).map_err(|_| SpdyError::FrameTooLarge(length))?;
    Ok(u32::from(flags) << 24 | length)
}

fn control(out: &mut BytesMut, kind: u16, flags: u8, bytes: usize) -> Result<(), SpdyError> {
    let length = length(flags, bytes)?;
    out.put_u16(0x8003);
    out.put_u16(kind);
    out.put_u32(length);
    Ok(())
}

fn pair(out: &mut BytesMut, kind: u16, first: u32, second: u32) -> Result<(), SpdyError> {
    control(out, kind, 0, 8)?;
    out.put_u32(first);
    out.put_u32(second);
    Ok(())
}

fn data(id: u32, bytes: &Bytes, fin: bool, out: &mut BytesMut) {
    let mut rest = bytes.as_ref();
    loop {
        let (piece, after) = rest.split_at(rest.len().min(MAX_DATA));
        let last = after.is_empty();
        out.reserve(HEADER + piece.len());
        out.put_u32(id & STREAM);
        out.put_u8(if fin && last { FIN } else { 0 });
        out.put_uint(piece.len() as u64, 3);
        out.put_slice(piece);
        if last {
            return;
        }
        rest = after;
    }
}

/// Reads the frames of one direction; holds its compression state and the place within a data frame.
pub struct Decoder {
    inflater: Inflater,
    /// Stream, bytes still to come and `fin` of the data frame that is being read.
    open: Option<(u32, usize, bool)>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { inflater: Inflater::new(), open: None }
    }
}

impl Decoder {
    /// Takes one frame (or piece of a data frame) off the front of `input`; `None` wants more bytes. Frames of
    /// unknown type are skipped.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, SpdyError> {
        loop {
            if let Some(open) = self.open {
                return Ok(self.piece(open, input));
            }
            let Some(head) = input.first_chunk::<HEADER>() else { return Ok(None) };
            let (mut first, mut second) = (&head[..4], &head[4..]);
            let (first, second) = (first.get_u32(), second.get_u32());
            let (flags, length) = ((second >> 24) as u8, (second & 0x00ff_ffff) as usize);
            if first & CONTROL == 0 {
                input.advance(HEADER);
                self.open = Some((first & STREAM, length, flags & FIN != 0));
                continue;
            }
            if length > MAX_CONTROL {
                return Err(SpdyError::FrameTooLarge(length));
            }
            if input.len() < HEADER + length {
                return Ok(None);
            }
            input.advance(HEADER);
            let payload = input.split_to(length).freeze();
            let version = (first >> 16 & 0x7fff) as u16;
            if version != 3 {
                return Err(SpdyError::Version(version));
            }
            if let Some(frame) = self.control((first & 0xffff) as u16, flags, payload)? {
                return Ok(Some(frame));
            }
        }
    }

    /// Whether the input so far ends between two frames.
    pub fn at_boundary(&self, input: &BytesMut) -> bool {
        self.open.is_none() && input.is_empty()
    }

    fn piece(&mut self, (id, left, fin): (u32, usize, bool), input: &mut BytesMut) -> Option<Frame> {
        if input.is_empty() && left > 0 {
            return None;
        }
        let bytes = input.split_to(left.min(input.len())).freeze();
        let left = left - bytes.len();
        self.open = (left > 0).then_some((id, left, fin));
        Some(Frame::Data { id, bytes, fin: fin && left == 0 })
    }

    fn control(&mut self, kind: u16, flags: u8, mut payload: Bytes) -> Result<Option<Frame>, SpdyError> {
        let mut word = || payload.try_get_u32().map_err(|_| SpdyError::Malformed(kind));
        let fin = flags & FIN != 0;
        Ok(Some(match kind {
            1 => {
                let id = word()? & STREAM;
                word()?;
                payload.try_get_u16().map_err(|_| SpdyError::Malformed(kind))?;
                let headers = self.inflater.decompress(&payload)?;
                Frame::SynStream { id, headers, fin, unidirectional: flags & UNIDIRECTIONAL != 0 }
            }
            2 => Frame::SynReply { id: word()? & STREAM, headers: self.inflater.decompress(&payload)?, fin },
            8 => Frame::Headers { id: word()? & STREAM, headers: self.inflater.decompress(&payload)?, fin },
            3 => Frame::Reset { id: word()? & STREAM, status: word()? },
            4 => Frame::Settings,
            6 => Frame::Ping { id: word()? },
            7 => Frame::GoAway { last: word()? & STREAM, status: word()? },
            9 => Frame::WindowUpdate { id: word()? & STREAM, delta: word()? & STREAM },
            _ => return Ok(None),
        }))
    }
}
