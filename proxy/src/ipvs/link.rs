//! The kernel's side of virtual servers: generic netlink, family `IPVS` (include/uapi/linux/ip_vs.h). The kernel answers
//! within the call that asks, so nothing here waits for anybody.

use super::servers::{Choice, FLAGS, Key, Real, Server, Servers, Step};
use crate::family::Family;
use crate::netlink::{Attributes, HEADER, attribute, cut, text};
use nix::errno::Errno;
use nix::libc::{AF_INET, AF_INET6};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeVal;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("no generic netlink")]
    Open(#[source] Errno),
    /// The module is not loaded.
    #[error("the kernel has no IPVS")]
    NoFamily,
    #[error("IPVS, {what}")]
    Asked {
        what: String,
        #[source]
        source: Errno,
    },
}

impl LinkError {
    /// Whether the kernel will not have it for what it is.
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Asked { source: Errno::EINVAL, .. })
    }

    /// Whether the kernel knows no such thing.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Asked { source: Errno::ENOENT, .. })
    }
}

/// More than any answer of one read.
const BUFFER: usize = 64 << 10;
/// Seconds that the kernel may take for an answer, loading a scheduler's module included.
const PATIENCE: i64 = 10;

/// `GENL_ID_CTRL`, its command `CTRL_CMD_GETFAMILY`, and attributes of it.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// Commands of the family `IPVS`.
const NEW_SERVICE: u8 = 1;
const SET_SERVICE: u8 = 2;
const DEL_SERVICE: u8 = 3;
const GET_SERVICE: u8 = 4;
const NEW_DEST: u8 = 5;
const SET_DEST: u8 = 6;
const DEL_DEST: u8 = 7;
const GET_DEST: u8 = 8;
const SET_CONFIG: u8 = 12;
/// Their attributes.
const SERVICE: u16 = 1;
const DEST: u16 = 2;
const TIMEOUTS: [u16; 3] = [4, 5, 6];
/// Of services: family, protocol, address, port, mark, scheduler, flags, timeout, netmask.
const S_FAMILY: u16 = 1;
const S_PROTOCOL: u16 = 2;
const S_ADDRESS: u16 = 3;
const S_PORT: u16 = 4;
const S_MARK: u16 = 5;
const S_SCHEDULER: u16 = 6;
const S_FLAGS: u16 = 7;
const S_TIMEOUT: u16 = 8;
const S_NETMASK: u16 = 9;
/// Of real servers: address, port, method of forwarding (0: translation), weight, thresholds, connections.
const D_ADDRESS: u16 = 1;
const D_PORT: u16 = 2;
const D_METHOD: u16 = 3;
const D_WEIGHT: u16 = 4;
const D_UPPER: u16 = 5;
const D_LOWER: u16 = 6;
const D_CONNECTIONS: [u16; 2] = [7, 8];

/// Flags and kinds of messages.
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const DUMP: u16 = 0x300;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `struct genlmsghdr`
const GENERIC: usize = 4;

/// A mark that virtual servers by mark are tried out with: "kube".
const TRIAL: u32 = 0x6b75_6265;

/// An open line to the balancer of the current network namespace.
pub struct Link {
    socket: OwnedFd,
    id: u16,
}

impl Link {
    /// # Errors
    /// [`LinkError::NoFamily`]: the kernel has no IPVS, or has not loaded it.
    pub fn open() -> Result<Self, LinkError> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let made = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkGeneric);
        let socket = made.map_err(LinkError::Open)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0)).map_err(LinkError::Open)?;
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(PATIENCE, 0)).map_err(LinkError::Open)?;
        let mut link = Self { socket, id: CONTROL };
        let name = Attributes::default().with(FAMILY_NAME, b"IPVS\0");
        let told = link.ask(GET_FAMILY, REQUEST | ACK, &name).map_err(|error| match error {
            Errno::ENOENT => LinkError::NoFamily,
            other => LinkError::Open(other),
        })?;
        let id = told.iter().find_map(|body| attribute(body, FAMILY_ID)?.try_into().ok());
        link.id = id.map(u16::from_ne_bytes).ok_or(LinkError::NoFamily)?;
        Ok(link)
    }

    /// The bodies of what the kernel answers.
    fn ask(&self, command: u8, flags: u16, attributes: &Attributes) -> Result<Vec<Vec<u8>>, Errno> {
        let length = u32::try_from(HEADER + GENERIC + attributes.0.len()).unwrap_or(u32::MAX);
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(self.id.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend([0; 8]);
        message.extend([command, 1, 0, 0]);
        message.extend(&attributes.0);
        send(self.socket.as_raw_fd(), &message, MsgFlags::empty())?;
        let (mut bodies, mut buffer) = (Vec::new(), vec![0; BUFFER]);
        loop {
            let read = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
            let mut rest = &buffer[..read];
            while let Some((piece, behind)) = cut(rest, 0, 4) {
                match end(piece) {
                    Some(0) => return Ok(bodies),
                    Some(error) => return Err(Errno::from_raw(error)),
                    None => bodies.push(piece.get(HEADER + GENERIC..).unwrap_or_default().to_vec()),
                }
                rest = behind;
            }
        }
    }

    fn done(
        &self,
        command: u8,
        attributes: &Attributes,
        what: impl FnOnce() -> String,
    ) -> Result<(), LinkError> {
        let asked = self.ask(command, REQUEST | ACK, attributes).map(drop);
        asked.map_err(|source| LinkError::Asked { what: what(), source })
    }

    /// All virtual servers of a family; whoever made them.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn servers(&self, family: Family) -> Result<Servers, LinkError> {
        let failed = |what: &str| {
            let what = what.to_owned();
            |source| LinkError::Asked { what, source }
        };
        let listed = self.ask(GET_SERVICE, REQUEST | DUMP, &Attributes::default());
        let listed = listed.map_err(failed("listing virtual servers"))?;
        let mut servers = Servers::new();
        for (key, choice) in listed.iter().filter_map(|body| read_service(attribute(body, SERVICE)?)) {
            if Family::of(key.ip) != family {
                continue;
            }
            let of = Attributes::default().with_nested(SERVICE, &name_of(&key));
            let dests = self.ask(GET_DEST, REQUEST | DUMP, &of).map_err(failed("listing real servers"))?;
            let dests = dests.iter().filter_map(|body| read_dest(attribute(body, DEST)?, family));
            let reals = dests.map(|dest| (dest.at, Real { weight: dest.weight, leaving: None })).collect();
            servers.insert(key, Server { choice, reals });
        }
        Ok(servers)
    }

    /// How many connections each real server of a virtual one still has.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn connections(&self, key: &Key) -> Result<BTreeMap<SocketAddr, u32>, LinkError> {
        let of = Attributes::default().with_nested(SERVICE, &name_of(key));
        let dests = self.ask(GET_DEST, REQUEST | DUMP, &of);
        let dests =
            dests.map_err(|source| LinkError::Asked { what: "counting connections".to_owned(), source })?;
        let read = dests.iter().filter_map(|body| read_dest(attribute(body, DEST)?, Family::of(key.ip)));
        Ok(read.map(|dest| (dest.at, dest.connections)).collect())
    }

    /// Takes one step. That something to remove is gone already is no error.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn take(&self, step: &Step) -> Result<(), LinkError> {
        let all = Attributes::default();
        let service = |key: &Key| all.clone().with_nested(SERVICE, &name_of(key));
        let with_choice = |key: &Key, choice: &Choice| {
            all.clone().with_nested(SERVICE, &choose(name_of(key), choice, Family::of(key.ip)))
        };
        let (command, attributes) = match step {
            Step::Add(key, choice) => (NEW_SERVICE, with_choice(key, choice)),
            Step::Change(key, choice) => (SET_SERVICE, with_choice(key, choice)),
            Step::Remove(key) => (DEL_SERVICE, service(key)),
            Step::AddReal(key, at, weight) => (NEW_DEST, service(key).with_nested(DEST, &dest(at, *weight))),
            Step::Weigh(key, at, weight) => (SET_DEST, service(key).with_nested(DEST, &dest(at, *weight))),
            Step::RemoveReal(key, at) => (DEL_DEST, service(key).with_nested(DEST, &dest(at, 0))),
        };
        match (self.done(command, &attributes, || format!("{step:?}")), step) {
            (Err(LinkError::Asked { source: Errno::ESRCH | Errno::ENOENT, .. }), Step::Remove(_)) => Ok(()),
            (Err(LinkError::Asked { source: Errno::ESRCH | Errno::ENOENT, .. }), Step::RemoveReal(..)) => {
                Ok(())
            }
            (done, _) => done,
        }
    }

    /// Tries out whether the kernel has a scheduler, by a virtual server that nothing leads to.
    ///
    /// # Errors
    /// [`is_unknown`](LinkError::is_unknown): it has none of that name.
    pub fn try_scheduler(&self, scheduler: &str) -> Result<(), LinkError> {
        let name = Attributes::default()
            .with(S_FAMILY, &family_number(Family::V4).to_ne_bytes())
            .with_number(S_MARK, TRIAL);
        let choice = Choice { scheduler: scheduler.to_owned(), flags: 0, timeout: 0 };
        let full = Attributes::default().with_nested(SERVICE, &choose(name.clone(), &choice, Family::V4));
        match self.done(NEW_SERVICE, &full, || format!("scheduler {scheduler}")) {
            // A trial whose end was not reached.
            Ok(()) | Err(LinkError::Asked { source: Errno::EEXIST, .. }) => {}
            failed => return failed,
        }
        let short = Attributes::default().with_nested(SERVICE, &name);
        self.done(DEL_SERVICE, &short, || "the end of a trial".to_owned())
    }

    /// TCP, TCP that is being closed, UDP; zero leaves what is.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn set_timeouts(&self, timeouts: [Duration; 3]) -> Result<(), LinkError> {
        let set = TIMEOUTS.into_iter().zip(timeouts).filter(|(_, time)| !time.is_zero());
        let attributes = set.fold(Attributes::default(), |attributes, (kind, time)| {
            attributes.with_number(kind, u32::try_from(time.as_secs()).unwrap_or(u32::MAX))
        });
        if attributes.0.is_empty() {
            return Ok(());
        }
        self.done(SET_CONFIG, &attributes, || "timeouts".to_owned())
    }
}

/// Whether a message is the last one: 0 where all went well, else the error's number.
fn end(message: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    let code =
        || message.get(HEADER..HEADER + 4).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
    match kind {
        ERROR => Some(code().map_or(0, i32::wrapping_neg)),
        DONE => Some(code().map_or(0, |code| code.min(0).wrapping_neg())),
        _ => None,
    }
}

fn family_number(family: Family) -> u16 {
    let number = if family == Family::V4 { AF_INET } else { AF_INET6 };
    u16::try_from(number).unwrap_or(0)
}

/// A `union nf_inet_addr`.
fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut all = [0; 16];
            all[..4].copy_from_slice(&ip.octets());
            all
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn read_address(bytes: &[u8], family: Family) -> Option<IpAddr> {
    Some(match family {
        Family::V4 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(..4)?).ok()?).into(),
        Family::V6 => Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(..16)?).ok()?).into(),
    })
}

fn name_of(key: &Key) -> Attributes {
    Attributes::default()
        .with(S_FAMILY, &family_number(Family::of(key.ip)).to_ne_bytes())
        .with(S_PROTOCOL, &key.protocol.to_ne_bytes())
        .with(S_ADDRESS, &address(key.ip))
        .with(S_PORT, &key.port.to_be_bytes())
}

fn choose(name: Attributes, choice: &Choice, family: Family) -> Attributes {
    // The part of a client's address that affinity goes by: all of it.
    let netmask = if family == Family::V4 { u32::MAX } else { 128 };
    let flags = [choice.flags.to_ne_bytes(), FLAGS.to_ne_bytes()].concat();
    name.with(S_SCHEDULER, format!("{}\0", choice.scheduler).as_bytes())
        .with(S_FLAGS, &flags)
        .with_number(S_TIMEOUT, choice.timeout)
        .with_number(S_NETMASK, netmask)
}

fn dest(at: &SocketAddr, weight: u32) -> Attributes {
    Attributes::default()
        .with(D_ADDRESS, &address(at.ip()))
        .with(D_PORT, &at.port().to_be_bytes())
        .with_number(D_METHOD, 0)
        .with_number(D_WEIGHT, weight)
        .with_number(D_UPPER, 0)
        .with_number(D_LOWER, 0)
}

fn number(bytes: &[u8], kind: u16) -> Option<u32> {
    attribute(bytes, kind)?.get(..4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn short(bytes: &[u8], kind: u16) -> Option<[u8; 2]> {
    attribute(bytes, kind)?.get(..2)?.try_into().ok()
}

/// `None`: it goes by a mark of packets, and is nobody's of ours.
fn read_service(bytes: &[u8]) -> Option<(Key, Choice)> {
    let number_of_family = u16::from_ne_bytes(short(bytes, S_FAMILY)?);
    let family = Family::ALL.into_iter().find(|family| family_number(*family) == number_of_family)?;
    let key = Key {
        protocol: u16::from_ne_bytes(short(bytes, S_PROTOCOL)?),
        ip: read_address(attribute(bytes, S_ADDRESS)?, family)?,
        port: u16::from_be_bytes(short(bytes, S_PORT)?),
    };
    let flags = number(bytes, S_FLAGS)? & FLAGS;
    let timeout = if flags & super::servers::PERSISTENT == 0 { 0 } else { number(bytes, S_TIMEOUT)? };
    let scheduler = attribute(bytes, S_SCHEDULER).map(text).unwrap_or_default();
    Some((key, Choice { scheduler, flags, timeout }))
}

struct Dest {
    at: SocketAddr,
    weight: u32,
    connections: u32,
}

fn read_dest(bytes: &[u8], family: Family) -> Option<Dest> {
    let ip = read_address(attribute(bytes, D_ADDRESS)?, family)?;
    let port = u16::from_be_bytes(short(bytes, D_PORT)?);
    let connections = D_CONNECTIONS.iter().filter_map(|kind| number(bytes, *kind)).sum();
    Some(Dest { at: SocketAddr::new(ip, port), weight: number(bytes, D_WEIGHT)?, connections })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for ip in [IpAddr::from([10, 43, 0, 9]), "fd03::9".parse().expect("an address")] {
            let key = Key { protocol: 17, ip, port: 53 };
            let choice = Choice { scheduler: "sh".to_owned(), flags: 9, timeout: 600 };
            let service = choose(name_of(&key), &choice, Family::of(ip));
            assert_eq!(read_service(&service.0), Some((key, choice)));
            let at = SocketAddr::new(ip, 8080);
            let read = read_dest(&dest(&at, 1).0, Family::of(ip)).expect("read");
            assert_eq!((read.at, read.weight, read.connections), (at, 1, 0));
            // Nothing that is cut short panics.
            for end in 0..service.0.len() {
                let _ = read_service(&service.0[..end]);
            }
        }
    }

    #[test]
    fn ends_are_told_from_answers() {
        let message = |kind: u16, code: i32| {
            let mut bytes = vec![20, 0, 0, 0];
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0; 10]);
            bytes.extend(code.to_ne_bytes());
            bytes
        };
        let ends = [(ERROR, 0), (ERROR, -2), (DONE, 0), (DONE, -5), (30, 1)];
        let read: Vec<_> = ends.iter().map(|(kind, code)| end(&message(*kind, *code))).collect();
        assert_eq!(read, [Some(0), Some(2), Some(0), Some(5), None]);
    }
}
