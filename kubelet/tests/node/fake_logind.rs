//! systemd-logind behind a message bus, as far as kubelets ask for it. It keeps state and knows nobody else.

use coracle_kubelet::logind::Paths;
use coracle_kubelet::logind::wire::{Arg, Head, Kind, Message, decode, encode};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use parking_lot::Mutex;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;

/// Logind's own address.
const OWN: &str = ":1.7";

#[derive(Default)]
struct State {
    delay_seconds: u64,
    drop_ins: PathBuf,
    inhibitors: Vec<Vec<String>>,
    /// Our ends of the locks that were given.
    locks: Vec<UnixStream>,
    owner_asked: usize,
    connection: Option<UnixStream>,
}

pub struct FakeLogind(Arc<Mutex<State>>);

impl FakeLogind {
    /// Serves where kubelets look for it, until the process ends.
    pub fn serve(paths: &Paths, delay_seconds: u64) -> Self {
        let listener = UnixListener::bind(&paths.bus).unwrap();
        let state = State { delay_seconds, drop_ins: paths.drop_ins.clone(), ..State::default() };
        let state = Arc::new(Mutex::new(state));
        let served = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (state, stream) = (served.clone(), stream.unwrap());
                // Whoever hangs up is done.
                std::thread::spawn(move || drop(speak(&state, stream)));
            }
        });
        Self(state)
    }

    /// How many locks are held.
    pub fn held(&self) -> usize {
        let held = |lock: &UnixStream| {
            lock.set_nonblocking(true).unwrap();
            (&mut &*lock).read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        self.0.lock().locks.iter().filter(|lock| held(lock)).count()
    }

    /// What was said to get them.
    pub fn inhibitors(&self) -> Vec<Vec<String>> {
        self.0.lock().inhibitors.clone()
    }

    /// How often somebody asked who logind is.
    pub fn owner_asked(&self) -> usize {
        self.0.lock().owner_asked
    }

    /// Tells that the machine is about to end, or not any more.
    pub fn say(&self, ends: bool) {
        self.say_as(OWN, ends);
    }

    pub fn say_as(&self, sender: &str, ends: bool) {
        let head = Head {
            kind: Kind::Signal,
            serial: 99,
            path: "/org/freedesktop/login1".to_owned(),
            interface: "org.freedesktop.login1.Manager".to_owned(),
            member: "PrepareForShutdown".to_owned(),
            sender: sender.to_owned(),
            ..Head::default()
        };
        let state = self.0.lock();
        state.connection.as_ref().unwrap().write_all(&encode(&head, &[Arg::Flag(ends)])).unwrap();
    }

    pub fn hang_up(&self) {
        self.0.lock().connection.take().unwrap().shutdown(Shutdown::Both).unwrap();
    }
}

/// The greeting, line by line, then messages.
fn speak(state: &Mutex<State>, mut stream: UnixStream) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
            let line: Vec<u8> = bytes.drain(..end + 2).collect();
            match String::from_utf8(line).unwrap().trim_end() {
                line if line.starts_with("\0AUTH EXTERNAL ") => {
                    stream.write_all(b"OK 0123456789abcdef\r\n")?
                }
                "NEGOTIATE_UNIX_FD" => stream.write_all(b"AGREE_UNIX_FD\r\n")?,
                "BEGIN" => return converse(state, stream, bytes),
                other => panic!("{other}"),
            }
        }
        more(&mut stream, &mut bytes)?;
    }
}

fn more(stream: &mut UnixStream, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    let mut chunk = [0; 512];
    match stream.read(&mut chunk)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        count => {
            bytes.extend_from_slice(&chunk[..count]);
            Ok(())
        }
    }
}

fn converse(state: &Mutex<State>, mut stream: UnixStream, mut bytes: Vec<u8>) -> std::io::Result<()> {
    state.lock().connection = Some(stream.try_clone()?);
    loop {
        while let Some((asked, length)) = decode(&bytes).unwrap() {
            bytes.drain(..length);
            answer(&mut state.lock(), &mut stream, &asked)?;
        }
        more(&mut stream, &mut bytes)?;
    }
}

fn answer(state: &mut State, stream: &mut UnixStream, asked: &Message) -> std::io::Result<()> {
    let reply = |descriptors| Head {
        kind: Kind::Return,
        serial: asked.head.serial,
        reply_to: Some(asked.head.serial),
        sender: asked.head.destination.clone(),
        descriptors,
        ..Head::default()
    };
    let texts = asked.texts();
    let args = match asked.head.member.as_str() {
        "Hello" => vec![Arg::Text(":1.1")],
        "AddMatch" => {
            assert!(texts[0].contains("member='PrepareForShutdown'"), "{texts:?}");
            Vec::new()
        }
        "Get" => {
            assert_eq!(texts, ["org.freedesktop.login1.Manager", "InhibitDelayMaxUSec"]);
            vec![Arg::Variant(state.delay_seconds * 1_000_000)]
        }
        "KillUnit" => {
            assert_eq!(texts, ["systemd-logind.service", "all"]);
            state.delay_seconds = configured(state).unwrap_or(state.delay_seconds);
            Vec::new()
        }
        "GetNameOwner" => {
            state.owner_asked += 1;
            vec![Arg::Text(OWN)]
        }
        "Inhibit" => {
            let (ours, theirs) = UnixStream::pair()?;
            state.inhibitors.push(texts);
            state.locks.push(ours);
            let bytes = encode(&reply(1), &[Arg::Descriptor(0)]);
            let given = [theirs.as_raw_fd()];
            let with = [ControlMessage::ScmRights(&given)];
            sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(&bytes)], &with, MsgFlags::empty(), None)?;
            return Ok(());
        }
        other => panic!("{other}"),
    };
    stream.write_all(&encode(&reply(0), &args))
}

fn configured(state: &State) -> Option<u64> {
    let text = std::fs::read_to_string(state.drop_ins.join("99-kubelet.conf")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("InhibitDelayMaxSec="))?.parse().ok()
}
