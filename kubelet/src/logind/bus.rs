//! A connection to the system's message bus.

use super::wire::{self, Arg, Head, Kind, Message, WireError};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;

/// How long an answer may take: who is asked may have to be started first, for which the bus gives 25 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest line before messages begin; the specification's.
const LINE: usize = 16 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum BusError {
    #[error("cannot connect to {}", path.display())]
    Connect {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the bus lets nobody in: {0}")]
    Refused(String),
    #[error("the bus cannot be read or written")]
    Io(#[from] io::Error),
    #[error("the bus has closed the connection")]
    Closed,
    #[error("the bus cannot be understood")]
    Wire(#[from] WireError),
    #[error("{member} was answered with {name}: {text}")]
    Answer { member: &'static str, name: String, text: String },
    #[error("{0} was not answered in time")]
    Late(&'static str),
}

/// A descriptor that came with a message; closed when dropped.
#[derive(Debug)]
pub struct Descriptor(RawFd);

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let Err(error) = nix::unistd::close(self.0) {
            tracing::debug!(%error, "a descriptor of the bus was closed already");
        }
    }
}

/// A message with what came with it.
#[derive(Debug)]
pub struct Received {
    pub message: Message,
    pub descriptors: Vec<Descriptor>,
}

/// Who is asked.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    pub name: &'static str,
    pub path: &'static str,
}

pub const BUS: Object = Object { name: "org.freedesktop.DBus", path: "/org/freedesktop/DBus" };

pub struct Bus {
    stream: UnixStream,
    /// What has come and was not taken.
    bytes: Vec<u8>,
    descriptors: VecDeque<Descriptor>,
    signals: VecDeque<Message>,
    serial: u32,
}

impl Bus {
    /// Connects as the process' own user.
    pub async fn connect(path: &Path) -> Result<Self, BusError> {
        let connected = UnixStream::connect(path).await;
        let stream = connected.map_err(|source| BusError::Connect { path: path.to_owned(), source })?;
        let mut bus = Self {
            stream,
            bytes: Vec::new(),
            descriptors: VecDeque::new(),
            signals: VecDeque::new(),
            serial: 0,
        };
        let greeting = tokio::time::timeout(ANSWER_TIMEOUT, bus.greet());
        greeting.await.map_err(|_| BusError::Late("the greeting"))??;
        bus.call(BUS, BUS.name, "Hello", &[]).await?;
        Ok(bus)
    }

    async fn greet(&mut self) -> Result<(), BusError> {
        let user = nix::unistd::geteuid().to_string();
        let user = coracle_api::hex::text(user.as_bytes());
        self.say(&format!("\0AUTH EXTERNAL {user}\r\n"), "OK ").await?;
        self.say("NEGOTIATE_UNIX_FD\r\n", "AGREE_UNIX_FD").await?;
        Ok(self.stream.write_all(b"BEGIN\r\n").await?)
    }

    async fn say(&mut self, line: &str, good: &str) -> Result<(), BusError> {
        self.stream.write_all(line.as_bytes()).await?;
        let end = loop {
            if let Some(end) = self.bytes.windows(2).position(|two| two == b"\r\n") {
                break end;
            }
            if self.bytes.len() > LINE {
                return Err(BusError::Refused("it answers without an end".to_owned()));
            }
            self.fill().await?;
        };
        let answer: Vec<u8> = self.bytes.drain(..end + 2).collect();
        if answer.starts_with(good.as_bytes()) {
            return Ok(());
        }
        Err(BusError::Refused(String::from_utf8_lossy(&answer[..end]).into_owned()))
    }

    /// Waits for more.
    async fn fill(&mut self) -> Result<(), BusError> {
        let mut chunk = [0; 1024];
        let stream = &self.stream;
        let (count, descriptors) =
            stream.async_io(Interest::READABLE, || receive(stream.as_raw_fd(), &mut chunk)).await?;
        self.descriptors.extend(descriptors);
        if count == 0 {
            return Err(BusError::Closed);
        }
        self.bytes.extend_from_slice(&chunk[..count]);
        Ok(())
    }

    async fn next(&mut self) -> Result<Received, BusError> {
        loop {
            if let Some((message, length)) = wire::decode(&self.bytes)? {
                self.bytes.drain(..length);
                let count = usize::try_from(message.head.descriptors).unwrap_or(usize::MAX);
                let count = count.min(self.descriptors.len());
                return Ok(Received { message, descriptors: self.descriptors.drain(..count).collect() });
            }
            self.fill().await?;
        }
    }

    /// Asks, and keeps what is told meanwhile for [`Self::signal`].
    pub async fn call(
        &mut self,
        object: Object,
        interface: &str,
        member: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Received, BusError> {
        let asked = tokio::time::timeout(ANSWER_TIMEOUT, self.ask(object, interface, member, args));
        asked.await.map_err(|_| BusError::Late(member))?
    }

    async fn ask(
        &mut self,
        object: Object,
        interface: &str,
        member: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Received, BusError> {
        self.serial += 1;
        let head = Head {
            serial: self.serial,
            path: object.path.to_owned(),
            interface: interface.to_owned(),
            member: member.to_owned(),
            destination: object.name.to_owned(),
            ..Head::default()
        };
        self.stream.write_all(&wire::encode(&head, args)).await?;
        loop {
            let received = self.next().await?;
            let head = &received.message.head;
            match head.kind {
                Kind::Signal => self.signals.push_back(received.message),
                Kind::Return if head.reply_to == Some(self.serial) => return Ok(received),
                Kind::Error if head.reply_to == Some(self.serial) => {
                    let text = received.message.texts().into_iter().next().unwrap_or_default();
                    return Err(BusError::Answer { member, name: head.error.clone(), text });
                }
                // An answer that came too late, or a question: nothing is offered here.
                _ => {}
            }
        }
    }

    /// The next thing that is told. May be dropped half-way: nothing is lost.
    pub async fn signal(&mut self) -> Result<Message, BusError> {
        if let Some(message) = self.signals.pop_front() {
            return Ok(message);
        }
        loop {
            let message = self.next().await?.message;
            if message.head.kind == Kind::Signal {
                return Ok(message);
            }
        }
    }
}

fn receive(socket: RawFd, chunk: &mut [u8]) -> io::Result<(usize, Vec<Descriptor>)> {
    let mut room = nix::cmsg_space!([RawFd; 16]);
    let mut parts = [IoSliceMut::new(chunk)];
    let got = recvmsg::<()>(socket, &mut parts, Some(&mut room), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for more in got.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = more {
            descriptors.extend(raw.into_iter().map(Descriptor));
        }
    }
    Ok((got.bytes, descriptors))
}
