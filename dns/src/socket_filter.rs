//! A program for the kernel that drops datagrams before they take room in the socket's queue (classic BPF, attached as
//! `SO_ATTACH_FILTER`; no privilege is needed). Of each client it names it lets a share through, by chance.

use socket2::SockFilter;
use std::net::IpAddr;

// linux/bpf_common.h and linux/filter.h.
const LOAD_WORD: u16 = 0x20;
const LOAD_BYTE: u16 = 0x30;
const SHIFT_RIGHT: u16 = 0x74;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
/// Loads from here on are from the network header: `SKF_NET_OFF`, -0x100000.
const NETWORK_HEADER: u32 = 0xFFF0_0000;
/// Loads a random word: `SKF_AD_OFF + SKF_AD_RANDOM`, -0x1000 + 56.
const RANDOM: u32 = 0xFFFF_F038;
const SOURCE_V4: u32 = NETWORK_HEADER + 12;
const SOURCE_V6: u32 = NETWORK_HEADER + 8;
const DROP: u32 = 0;
const WHOLE: u32 = u32::MAX;

/// All of a client's datagrams, of which a share is a part.
pub const ALL: u32 = 1 << 16;

/// Lets all datagrams through but those of these clients, of which it lets the share through (of [`ALL`]). At most some
/// 300 clients: the kernel takes 4,096 instructions.
pub fn program(shares: &[(IpAddr, u32)]) -> Vec<SockFilter> {
    let (mut v4, mut v6) = (vec![load(SOURCE_V4)], Vec::new());
    for (client, share) in shares {
        match client.to_canonical() {
            IpAddr::V4(ip) => v4.extend(of_v4(u32::from(ip), *share)),
            IpAddr::V6(ip) => v6.extend(of_v6(ip.octets(), *share)),
        }
    }
    v4.push(ret(WHOLE));
    v6.push(ret(WHOLE));
    let over_v4 = u32::try_from(v4.len()).unwrap_or_default();
    let mut program = vec![
        SockFilter::new(LOAD_BYTE, 0, 0, NETWORK_HEADER),
        SockFilter::new(SHIFT_RIGHT, 0, 0, 4),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, 6),
        SockFilter::new(JUMP, 0, 0, over_v4),
    ];
    program.extend(v4);
    program.extend(v6);
    program
}

fn of_v4(ip: u32, share: u32) -> Vec<SockFilter> {
    let mut block = vec![SockFilter::new(JUMP_IF_EQUAL, 0, 4, ip)];
    block.extend(by_chance(share));
    block
}

/// Compares word by word; the first that differs leads behind the block.
fn of_v6(ip: [u8; 16], share: u32) -> Vec<SockFilter> {
    let mut block = Vec::with_capacity(12);
    for (word, left) in ip.chunks_exact(4).zip([10, 8, 6, 4]) {
        let offset = 4 * (u32::from(10 - left) / 2);
        let word = word.iter().fold(0, |all, byte| all << 8 | u32::from(*byte));
        block.push(load(SOURCE_V6 + offset));
        block.push(SockFilter::new(JUMP_IF_EQUAL, 0, left, word));
    }
    block.extend(by_chance(share));
    block
}

fn by_chance(share: u32) -> [SockFilter; 4] {
    let below = share.saturating_mul(u32::MAX / ALL);
    [load(RANDOM), SockFilter::new(JUMP_IF_AT_LEAST, 0, 1, below), ret(DROP), ret(WHOLE)]
}

const fn load(offset: u32) -> SockFilter {
    SockFilter::new(LOAD_WORD, 0, 0, offset)
}

const fn ret(length: u32) -> SockFilter {
    SockFilter::new(RETURN, 0, 0, length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::SockRef;
    use std::net::UdpSocket;
    use std::time::Duration;

    /// How many of a hundred datagrams from the address come through a socket with this program.
    fn through(server: &str, client: &str, shares: &[(IpAddr, u32)]) -> usize {
        let receiver = UdpSocket::bind((server, 0)).expect("a socket");
        receiver.set_read_timeout(Some(Duration::from_millis(1))).expect("a limit");
        SockRef::from(&receiver).attach_filter(&program(shares)).expect("a program that the kernel takes");
        let sender = UdpSocket::bind((client, 0)).expect("a socket");
        let to = receiver.local_addr().expect("bound");
        // One by one, so that the queue is never full.
        (0..100)
            .filter(|_| {
                sender.send_to(&[7; 30], to).expect("sent");
                receiver.recv(&mut [0; 64]).is_ok_and(|length| length == 30)
            })
            .count()
    }

    fn shares(of: &[(&str, u32)]) -> Vec<(IpAddr, u32)> {
        of.iter().map(|(ip, share)| (ip.parse().expect("an address"), *share)).collect()
    }

    #[test]
    fn the_named_clients_have_their_share_and_all_others_everything() {
        let few = shares(&[("127.0.0.9", ALL / 2), ("127.0.0.2", 0), ("::1", 0), ("127.0.0.8", ALL)]);
        for (client, share) in [("127.0.0.2", 0..=0), ("127.0.0.9", 20..=80), ("127.0.0.3", 100..=100)] {
            let came = through("127.0.0.1", client, &few);
            assert!(share.contains(&came), "{client}: {came}");
        }
        assert_eq!(through("127.0.0.1", "127.0.0.2", &[]), 100);
        assert_eq!(through("::1", "::1", &few), 0);
        assert_eq!(through("::1", "::1", &shares(&[("127.0.0.2", 0), ("::2", 0)])), 100);
    }

    #[test]
    fn the_kernel_takes_as_many_clients_as_are_named() {
        let crowd: Vec<_> = (0..300).map(|n| (IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n]), 7)).collect();
        assert_eq!(through("127.0.0.1", "127.0.0.2", &crowd), 100);
    }
}
