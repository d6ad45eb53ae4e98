//! Netlink's messages: length-prefixed pieces in this machine's byte order (include/uapi/linux/netlink.h).

/// The length of `struct nlmsghdr`.
pub const HEADER: usize = 16;

/// Splits off one length-prefixed piece of netlink's two kinds: messages (`width` 4) and attributes (`width` 2).
pub fn cut(bytes: &[u8], at: usize, width: usize) -> Option<(&[u8], &[u8])> {
    let field = bytes.get(at..at + width)?;
    let length = match width {
        4 => usize::try_from(u32::from_ne_bytes(field.try_into().ok()?)).ok()?,
        _ => usize::from(u16::from_ne_bytes(field.try_into().ok()?)),
    };
    let piece = bytes.get(..length).filter(|piece| piece.len() >= 4)?;
    Some((piece, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// The content of the first attribute of a kind.
pub fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (piece, rest) = cut(bytes, 0, 2)?;
        let kind = u16::from_ne_bytes(piece.get(2..4)?.try_into().ok()?) & 0x3fff;
        if kind == wanted {
            return piece.get(4..);
        }
        bytes = rest;
    }
}

/// Names end with a zero byte.
pub fn text(bytes: &[u8]) -> String {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// Attributes that are being written, one behind the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes(pub Vec<u8>);

/// NLA_F_NESTED
const NESTED: u16 = 1 << 15;

impl Attributes {
    /// With one more attribute. Nothing here is near the 64 KiB that an attribute can have.
    pub fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub fn with_number(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    pub fn with_nested(self, kind: u16, inner: &Self) -> Self {
        self.with(kind | NESTED, &inner.0)
    }
}
