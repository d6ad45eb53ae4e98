//! Messages of D-Bus (<https://dbus.freedesktop.org/doc/dbus-specification.html>), as far as a client of logind needs them.

/// A message longer than this is not read; logind's have some hundred bytes, the specification allows 128 MiB.
const LONGEST: usize = 1 << 20;
/// Before the fields of the header: byte order, type, flags, version, three numbers.
const FIXED: usize = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Call = 1,
    Return = 2,
    Error = 3,
    Signal = 4,
}

/// Who is asked what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub kind: Kind,
    pub serial: u32,
    /// The serial of the call that this answers.
    pub reply_to: Option<u32>,
    pub path: String,
    pub interface: String,
    pub member: String,
    /// The name of an error.
    pub error: String,
    pub destination: String,
    pub sender: String,
    pub signature: String,
    /// How many descriptors come with it.
    pub descriptors: u32,
}

#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    Text(&'a str),
    Int(i32),
    Flag(bool),
    /// The place of a descriptor among those that come with the message.
    Descriptor(u32),
    /// A variant that holds a number of 64 bits.
    Variant(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("a message of {0} bytes")]
    Long(usize),
    #[error("a message that cannot be read")]
    Malformed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub head: Head,
    body: Vec<u8>,
    big: bool,
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn whole(&mut self, number: u32) {
        self.align(4);
        self.0.extend(number.to_le_bytes());
    }

    fn length(&mut self, length: usize) {
        self.whole(u32::try_from(length).unwrap_or(u32::MAX));
    }

    fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.extend(text.bytes().chain([0]));
    }

    fn signature(&mut self, signature: &str) {
        self.0.push(u8::try_from(signature.len()).unwrap_or(u8::MAX));
        self.0.extend(signature.bytes().chain([0]));
    }

    /// A field of the header: a structure of its code and a variant.
    fn field(&mut self, code: u8, signature: &str) {
        self.align(8);
        self.0.push(code);
        self.signature(signature);
    }

    fn arg(&mut self, arg: Arg<'_>) -> &'static str {
        match arg {
            Arg::Text(text) => {
                self.text(text);
                "s"
            }
            Arg::Int(number) => {
                self.whole(number.cast_unsigned());
                "i"
            }
            Arg::Flag(flag) => {
                self.whole(u32::from(flag));
                "b"
            }
            Arg::Descriptor(place) => {
                self.whole(place);
                "h"
            }
            Arg::Variant(number) => {
                self.signature("t");
                self.align(8);
                self.0.extend(number.to_le_bytes());
                "v"
            }
        }
    }
}

/// As it goes over the wire. The head's signature is made of the arguments.
pub fn encode(head: &Head, args: &[Arg<'_>]) -> Vec<u8> {
    let mut body = Writer::default();
    let signature: String = args.iter().map(|arg| body.arg(*arg)).collect();
    let mut fields = Writer::default();
    let texts = [
        (1, "o", &head.path),
        (2, "s", &head.interface),
        (3, "s", &head.member),
        (4, "s", &head.error),
        (6, "s", &head.destination),
        (7, "s", &head.sender),
    ];
    for (code, kind, text) in texts.into_iter().filter(|(.., text)| !text.is_empty()) {
        fields.field(code, kind);
        fields.text(text);
    }
    let numbers = [(5, head.reply_to), (9, Some(head.descriptors).filter(|count| *count > 0))];
    for (code, number) in numbers {
        if let Some(number) = number {
            fields.field(code, "u");
            fields.whole(number);
        }
    }
    if !signature.is_empty() {
        fields.field(8, "g");
        fields.signature(&signature);
    }
    let mut all = Writer(vec![b'l', head.kind as u8, 0, 1]);
    all.length(body.0.len());
    all.whole(head.serial);
    all.length(fields.0.len());
    all.0.extend(fields.0);
    all.align(8);
    all.0.extend(body.0);
    all.0
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    big: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn whole(&mut self) -> Option<u32> {
        self.align(4);
        let bytes = self.take(4)?.try_into().ok()?;
        Some(if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn long(&mut self) -> Option<u64> {
        self.align(8);
        let bytes = self.take(8)?.try_into().ok()?;
        Some(if self.big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    fn words(&mut self, length: usize) -> Option<String> {
        let text = std::str::from_utf8(self.take(length)?).ok()?.to_owned();
        (self.byte()? == 0).then_some(text)
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.whole()?).ok()?;
        self.words(length)
    }

    fn signature(&mut self) -> Option<String> {
        let length = usize::from(self.byte()?);
        self.words(length)
    }

    fn head(&mut self, kind: Kind, serial: u32) -> Option<Head> {
        let mut head = Head { kind, serial, ..Head::default() };
        while self.at < self.bytes.len() {
            self.align(8);
            let code = self.byte()?;
            match (self.signature()?.as_str(), code) {
                ("o", 1) => head.path = self.text()?,
                ("s", 2) => head.interface = self.text()?,
                ("s", 3) => head.member = self.text()?,
                ("s", 4) => head.error = self.text()?,
                ("u", 5) => head.reply_to = Some(self.whole()?),
                ("s", 6) => head.destination = self.text()?,
                ("s", 7) => head.sender = self.text()?,
                ("g", 8) => head.signature = self.signature()?,
                ("u", 9) => head.descriptors = self.whole()?,
                // Those that a later version may have.
                ("o" | "s", _) => drop(self.text()?),
                ("u", _) => drop(self.whole()?),
                ("g", _) => drop(self.signature()?),
                _ => return None,
            }
        }
        Some(head)
    }
}

fn kind_of(byte: u8) -> Option<Kind> {
    [Kind::Call, Kind::Return, Kind::Error, Kind::Signal].into_iter().find(|kind| *kind as u8 == byte)
}

/// The first message, and how many bytes it has; `None` where some of them are still to come.
///
/// # Errors
/// If what follows cannot be understood any more.
pub fn decode(bytes: &[u8]) -> Result<Option<(Message, usize)>, WireError> {
    if bytes.len() < FIXED {
        return Ok(None);
    }
    let big = match bytes[0] {
        b'l' => false,
        b'B' => true,
        _ => return Err(WireError::Malformed),
    };
    let mut fixed = Reader { bytes: &bytes[..FIXED], at: 4, big };
    let mut number = || fixed.whole().ok_or(WireError::Malformed);
    let (body, serial, fields) = (number()?, number()?, number()?);
    let length = |number: u32| usize::try_from(number).map_err(|_| WireError::Malformed);
    let (body, fields) = (length(body)?, length(fields)?);
    let begin = FIXED.saturating_add(fields).checked_next_multiple_of(8).unwrap_or(usize::MAX);
    let end = begin.saturating_add(body);
    if end > LONGEST {
        return Err(WireError::Long(end));
    }
    if bytes.len() < end {
        return Ok(None);
    }
    let kind = kind_of(bytes[1]).ok_or(WireError::Malformed)?;
    let mut reader = Reader { bytes: &bytes[..FIXED + fields], at: FIXED, big };
    let head = reader.head(kind, serial).ok_or(WireError::Malformed)?;
    Ok(Some((Message { head, body: bytes[begin..end].to_vec(), big }, end)))
}

impl Message {
    fn reader(&self, signature: &str) -> Option<Reader<'_>> {
        let reader = Reader { bytes: &self.body, at: 0, big: self.big };
        self.head.signature.starts_with(signature).then_some(reader)
    }

    /// All texts that the message begins with.
    pub fn texts(&self) -> Vec<String> {
        let count = self.head.signature.chars().take_while(|kind| *kind == 's').count();
        let Some(mut reader) = self.reader("") else { return Vec::new() };
        (0..count).map_while(|_| reader.text()).collect()
    }

    pub fn flag(&self) -> Option<bool> {
        Some(self.reader("b")?.whole()? == 1)
    }

    /// The place of the descriptor that it begins with.
    pub fn descriptor(&self) -> Option<usize> {
        usize::try_from(self.reader("h")?.whole()?).ok()
    }

    /// The number in the variant that it begins with.
    pub fn variant(&self) -> Option<u64> {
        let mut reader = self.reader("v")?;
        (reader.signature()? == "t").then(|| reader.long())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The first call of every client, as libdbus writes it but for the order of fields, which is free.
    #[test]
    fn a_call_is_written_as_the_specification_has_it() {
        let head = Head {
            serial: 1,
            path: "/org/freedesktop/DBus".to_owned(),
            interface: "org.freedesktop.DBus".to_owned(),
            member: "Hello".to_owned(),
            destination: "org.freedesktop.DBus".to_owned(),
            ..Head::default()
        };
        let expected = b"l\x01\0\x01\0\0\0\0\x01\0\0\0m\0\0\0\
            \x01\x01o\0\x15\0\0\0/org/freedesktop/DBus\0\0\0\
            \x02\x01s\0\x14\0\0\0org.freedesktop.DBus\0\0\0\0\
            \x03\x01s\0\x05\0\0\0Hello\0\0\0\
            \x06\x01s\0\x14\0\0\0org.freedesktop.DBus\0\0\0\0";
        assert_eq!(encode(&head, &[]), expected);
        assert_eq!(decode(expected).unwrap().unwrap().0.head, head);
    }

    #[test]
    fn what_was_written_is_read() {
        let head =
            Head { kind: Kind::Return, serial: 7, reply_to: Some(3), descriptors: 1, ..Head::default() };
        let read = |args: &[Arg<'_>]| decode(&encode(&head, args)).unwrap().unwrap().0;
        assert_eq!(read(&[Arg::Text("a"), Arg::Text(""), Arg::Int(-1)]).texts(), ["a", ""]);
        assert_eq!(read(&[Arg::Descriptor(2)]).descriptor(), Some(2));
        assert_eq!(read(&[Arg::Flag(true)]).flag(), Some(true));
        let number = read(&[Arg::Variant(30_000_000)]);
        assert_eq!(
            (number.variant(), number.flag(), number.head.reply_to),
            (Some(30_000_000), None, Some(3))
        );
    }

    #[test]
    fn another_machines_order_of_bytes_is_understood() {
        let message =
            b"B\x04\0\x01\0\0\0\x04\0\0\0\x05\0\0\0\x10\x08\x01g\0\x01b\0\0\x05\x01u\0\0\0\0\x09\0\0\0\x01";
        let (read, length) = decode(message).unwrap().unwrap();
        assert_eq!(length, message.len());
        let Head { kind, serial, reply_to, .. } = read.head;
        assert_eq!((kind, serial, reply_to), (Kind::Signal, 5, Some(9)));
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused(mut bytes: Vec<u8>, order in 0..2_usize) {
            if let Some(first) = bytes.first_mut() {
                *first = b"lB"[order];
            }
            if let Ok(Some((message, length))) = decode(&bytes) {
                prop_assert!(length <= bytes.len());
                let _ = (message.texts(), message.flag(), message.variant(), message.descriptor());
            }
        }

        #[test]
        fn a_flipped_byte_breaks_nothing(at in 0..120_usize, to: u8) {
            let head = Head { path: "/a".to_owned(), member: "M".to_owned(), serial: 1, ..Head::default() };
            let mut bytes = encode(&head, &[Arg::Text("text"), Arg::Variant(1)]);
            let at = at % bytes.len();
            bytes[at] = to;
            if let Ok(Some((message, _))) = decode(&bytes) {
                let _ = (message.texts(), message.variant());
            }
        }
    }
}
