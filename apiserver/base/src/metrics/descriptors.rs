//! What the process has open, by kind, from /proc (proc_pid_fd(5)).

use coracle_metrics::Text;
use std::collections::BTreeMap;
use std::path::Path;

pub(super) fn render(text: &mut Text) {
    let Ok(files) = std::fs::read_dir("/proc/self/fd") else { return };
    let (mut kinds, mut watches) = (BTreeMap::<&str, usize>::new(), 0);
    for file in files.flatten() {
        // The one by which the directory is read leads to it; those that were closed meanwhile lead nowhere.
        let Ok(target) = std::fs::read_link(file.path()) else { continue };
        if target.starts_with("/proc") && target.ends_with("fd") {
            continue;
        }
        let kind = kind_of(&target);
        *kinds.entry(kind).or_default() += 1;
        if kind == "inotify" {
            watches += inotify_watches(&file.file_name());
        }
    }
    let all: usize = kinds.values().sum();
    text.single("process_open_fds", "Number of open file descriptors.", "gauge", all);
    let name = "coracle_process_descriptors";
    text.head(name, "Open file descriptors, by what they are of.", "gauge");
    for (kind, count) in kinds {
        text.sample(name, &[("kind", kind)], count);
    }
    text.single(
        "coracle_process_inotify_watches",
        "Files and directories watched by inotify.",
        "gauge",
        watches,
    );
}

/// `file` is what has a path; the others are named by the kernel.
fn kind_of(target: &Path) -> &'static str {
    const NAMED: [(&str, &str); 7] = [
        ("socket:", "socket"),
        ("pipe:", "pipe"),
        ("anon_inode:inotify", "inotify"),
        ("anon_inode:[eventpoll]", "epoll"),
        ("anon_inode:[eventfd]", "eventfd"),
        ("anon_inode:[pidfd]", "pidfd"),
        ("anon_inode:[timerfd]", "timerfd"),
    ];
    let text = target.to_string_lossy();
    let named = NAMED.iter().find(|(prefix, _)| text.starts_with(prefix));
    named.map_or(if text.starts_with('/') { "file" } else { "other" }, |(_, kind)| kind)
}

fn inotify_watches(descriptor: &std::ffi::OsStr) -> usize {
    let info = std::fs::read_to_string(Path::new("/proc/self/fdinfo").join(descriptor)).unwrap_or_default();
    info.lines().filter(|line| line.starts_with("inotify ")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_have_kinds() {
        for (target, kind) in [
            ("socket:[4711]", "socket"),
            ("pipe:[4711]", "pipe"),
            ("anon_inode:inotify", "inotify"),
            ("anon_inode:[eventpoll]", "epoll"),
            ("anon_inode:[io_uring]", "other"),
            ("/var/lib/coracle/lock", "file"),
        ] {
            assert_eq!(kind_of(Path::new(target)), kind, "{target}");
        }
    }

    #[test]
    fn an_open_socket_is_counted() {
        let sockets = || {
            let mut text = Text::default();
            render(&mut text);
            let page = text.finish();
            let line =
                page.lines().find_map(|l| l.strip_prefix("coracle_process_descriptors{kind=\"socket\"} "));
            line.map_or(0, |count| count.parse::<usize>().unwrap())
        };
        let held: Vec<_> = (0..64).map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        assert!(sockets() >= held.len());
    }
}
