//! What the processes of a control group have open.

use super::node::{Interface, interfaces_of};
use std::{fs, io};

/// Of one group without those below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    pub count: u64,
    pub descriptors: u64,
    /// `None` where the kernel does not say of every descriptor what it is: only who may trace a process is told, and a
    /// node has given CAP_SYS_PTRACE up.
    pub sockets: Option<u64>,
    /// Sockets of the network that its first process sees, whoever has them.
    pub network_sockets: Option<u64>,
    /// How many files its first process may have open; `None` without a limit, or without a process.
    pub most_open_files: Option<u64>,
    /// The network that its first process sees.
    pub interfaces: Vec<Interface>,
}

/// Of the processes of these ids. Reads three files and a directory of each; one that has gone counts no more.
pub fn of(pids: &str) -> Processes {
    let mut all = Processes { sockets: Some(0), ..Processes::default() };
    for pid in pids.split_whitespace() {
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        all.count += 1;
        for entry in open.flatten() {
            all.descriptors += 1;
            let one = match fs::read_link(entry.path()) {
                Ok(to) => Some(u64::from(to.to_string_lossy().starts_with("socket:"))),
                // It was closed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Some(0),
                Err(_) => None,
            };
            all.sockets = all.sockets.zip(one).map(|(all, one)| all + one);
        }
    }
    all.most_open_files = soft_limit(&first(pids, "limits"));
    all.interfaces = interfaces(pids);
    all.network_sockets = used(&first(pids, "net/sockstat"));
    all
}

/// The network that the first of these processes sees.
pub fn interfaces(pids: &str) -> Vec<Interface> {
    interfaces_of(&first(pids, "net/dev"))
}

/// What /proc says of the first that is still there: a shell's short-lived children may come before it.
fn first(pids: &str, name: &str) -> String {
    let texts =
        pids.split_whitespace().filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/{name}")).ok());
    texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
}

/// `sockets: used 12`, which counts those of processes in all families.
fn used(sockstat: &str) -> Option<u64> {
    sockstat.lines().find_map(|line| line.strip_prefix("sockets: used "))?.trim().parse().ok()
}

/// `Max open files            1024                 4096                 files`.
fn soft_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_looked_into() {
        let _socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let found = of(&std::process::id().to_string());
        assert_eq!(found.count, 1);
        let sockets = found.sockets.expect("one may look into oneself");
        assert!(sockets >= 1 && found.descriptors > sockets, "{found:?}");
        assert!(found.network_sockets >= Some(1), "{found:?}");
        let gone_before = of(&format!("4194304999 {}", std::process::id()));
        assert_eq!(gone_before.network_sockets.is_some(), found.network_sockets.is_some());
        assert!(gone_before.most_open_files == found.most_open_files && gone_before.count == 1);
        assert_eq!(of("4194304999"), Processes { sockets: Some(0), ..Processes::default() });
    }

    #[test]
    fn limits_are_read() {
        assert_eq!(
            soft_limit("Max open files            1024                 4096                 files\n"),
            Some(1024)
        );
        assert_eq!(
            soft_limit("Max open files            unlimited            unlimited            files\n"),
            None
        );
    }
}
