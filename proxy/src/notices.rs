//! What the kernel tells of changes to packet rules, by whomever: nfnetlink's group of nftables, which is also what the
//! usual iptables writes to. Costs nothing while nothing changes.

use crate::command::Own;
use crate::family::Family;
use crate::netlink::{HEADER, attribute, cut, text};
use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, setsockopt, socket, sockopt,
};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsRawFd;
use tokio::net::UnixDatagram;
use tokio::sync::mpsc;

/// NFNLGRP_NFTABLES (include/uapi/linux/netfilter/nfnetlink.h) as a bit.
const GROUP: u32 = 1 << (7 - 1);
/// Room for the notices of a large change, in bytes. Beyond it the kernel drops some and says so.
const QUEUE: usize = 8 << 20;
/// Longer than any single notice.
const BUFFER: usize = 64 << 10;

/// A change to a table, or to a chain of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notice {
    pub family: Family,
    pub table: String,
    /// `None`: the table itself, or a set in it.
    pub chain: Option<String>,
    pub removed: bool,
}

/// What others changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Changed(BTreeSet<Notice>),
    /// More has changed than could be told.
    Lost,
}

/// Begins to listen in the current network namespace; what others change comes out. It ends when nobody receives.
///
/// # Errors
/// The kernel does not let us, or has no nftables.
pub fn listen(own: Own) -> io::Result<mpsc::Receiver<Told>> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let netfilter = SockProtocol::NetlinkNetFilter;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, netfilter)?;
    // Without the right to force it, it is what the system gives.
    if setsockopt(&socket, sockopt::RcvBufForce, &QUEUE).is_err() {
        tracing::debug!("the system's own size of socket buffers holds for packet rules' notices");
    }
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUP))?;
    // To the runtime all sockets of packets are alike: this is its type for one that is no UDP.
    let socket = UnixDatagram::from_std(socket.into())?;
    // One stands for all that come after it, until it has been read.
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        tokio::select! {
            () = read_all(&socket, &own, &sender) => {}
            () = sender.closed() => {}
        }
    });
    Ok(receiver)
}

async fn read_all(socket: &UnixDatagram, own: &Own, sender: &mpsc::Sender<Told>) {
    let mut buffer = vec![0; BUFFER];
    let mut gathered = BTreeSet::new();
    loop {
        match socket.recv(&mut buffer).await {
            Ok(length) => {
                for event in Events(&buffer[..length]) {
                    match event {
                        Event::Changed(notice) => {
                            gathered.insert(notice);
                        }
                        Event::Generation(pid) => {
                            let notices = std::mem::take(&mut gathered);
                            if !notices.is_empty() && !own.made(pid) {
                                // Whoever reads is gone, or has more to do than fits: it looks at everything then.
                                let _ = sender.try_send(Told::Changed(notices));
                            }
                        }
                    }
                }
            }
            Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => {
                gathered.clear();
                let _ = sender.try_send(Told::Lost);
            }
            Err(error) => return tracing::warn!(%error, "the kernel no longer tells of changed packet rules"),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Changed(Notice),
    /// The end of a transaction, and who made it.
    Generation(Option<u32>),
}

/// NFNL_SUBSYS_NFTABLES
const SUBSYSTEM: u16 = 10;
/// Kinds of messages (include/uapi/linux/netfilter/nf_tables.h, nf_tables_msg_types).
const NEW_TABLE: u16 = 0;
const DELETE_SET_ELEMENT: u16 = 14;
const NEW_GENERATION: u16 = 15;
const DELETES: [u16; 5] = [2, 5, 8, 11, DELETE_SET_ELEMENT];
/// Chains carry their name as their third attribute, rules name their chain in the second.
const CHAINS: [u16; 2] = [3, 5];
const RULES: [u16; 2] = [6, 8];
/// `NFTA_TABLE_NAME`, `NFTA_CHAIN_TABLE`, `NFTA_RULE_TABLE`, `NFTA_SET_TABLE`, `NFTA_SET_ELEM_LIST_TABLE`
const TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const RULE_CHAIN: u16 = 2;
const GENERATION_PID: u16 = 2;
/// `struct nfgenmsg`: family, version, resource
const GENERIC: usize = 4;

/// The messages of one datagram.
struct Events<'a>(&'a [u8]);

impl Iterator for Events<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            let (message, rest) = cut(self.0, 0, 4)?;
            self.0 = rest;
            if let Some(event) = event(message) {
                return Some(event);
            }
        }
    }
}

fn event(message: &[u8]) -> Option<Event> {
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    if kind >> 8 != SUBSYSTEM {
        return None;
    }
    let (kind, body) = (kind & 0xff, message.get(HEADER + GENERIC..)?);
    if kind == NEW_GENERATION {
        let pid = attribute(body, GENERATION_PID).and_then(|pid| pid.try_into().ok());
        return Some(Event::Generation(pid.map(u32::from_be_bytes)));
    }
    if kind > DELETE_SET_ELEMENT {
        return None;
    }
    let family = match i32::from(*message.get(HEADER)?) {
        nix::libc::AF_INET => Family::V4,
        nix::libc::AF_INET6 => Family::V6,
        _ => return None,
    };
    let chain = match kind {
        kind if CHAINS.contains(&kind) => attribute(body, CHAIN_NAME),
        kind if RULES.contains(&kind) => attribute(body, RULE_CHAIN),
        _ => None,
    };
    let removed = kind != NEW_TABLE && DELETES.contains(&kind);
    let table = text(attribute(body, TABLE)?);
    Some(Event::Changed(Notice { family, table, chain: chain.map(text), removed }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).expect("short");
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, family: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
        let body = attributes.concat();
        let length = u32::try_from(HEADER + GENERIC + body.len()).expect("short");
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend((SUBSYSTEM << 8 | kind).to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend([family, 0, 0, 0]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn messages_are_read() {
        let rule = message(8, 2, &[attribute(1, b"nat\0"), attribute(2, b"KUBE-SERVICES\0")]);
        let table = message(2, 10, &[attribute(1, b"kube-proxy\0")]);
        let other = message(0, 1, &[attribute(1, b"x\0")]);
        let end = message(15, 0, &[attribute(1, &[0, 0, 0, 9]), attribute(2, &[0, 0, 1, 2])]);
        let all = [rule, table, other, end].concat();
        let notice = |family, table: &str, chain: Option<&str>| {
            Event::Changed(Notice {
                family,
                table: table.to_owned(),
                chain: chain.map(str::to_owned),
                removed: true,
            })
        };
        let read: Vec<Event> = Events(&all).collect();
        assert_eq!(
            read,
            [
                notice(Family::V4, "nat", Some("KUBE-SERVICES")),
                notice(Family::V6, "kube-proxy", None),
                Event::Generation(Some(258))
            ]
        );
        // Nothing that is cut short, or says that it has no length, hangs or panics.
        for end in 0..all.len() {
            let _ = Events(&all[..end]).count();
        }
        assert_eq!(Events(&[0; 64]).count(), 0);
    }
}
