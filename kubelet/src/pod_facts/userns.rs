//! Users of their own for pods with `hostUsers: false`: root in such a pod is nobody on the node
//! (<https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/>).
//!
//! Each pod gets a range of user and group ids of the node's that no other has. It is noted in the pod's directory and in
//! no other place: it outlives the kubelet with the pod, and goes with it.

use crate::cri::api;
use coracle_storage::beneath::Dir;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Ids of one pod: all that a container's programs may ask for. Upstream's.
const LENGTH: u32 = 65_536;
/// Who owns the ranges in /etc/subuid and /etc/subgid; upstream's.
const OWNER: &str = "kubelet";
/// In the pod's directory, as upstream has it.
const FILE: &str = "userns";
/// Bytes of that file.
const MAX_FILE: u64 = 4096;

#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    #[error("runtime handler {0:?} does not support user namespaces")]
    Runtime(String),
    #[error("no range of user ids is free for the pod")]
    NoneFree,
    #[error("cannot read or write the users of pods at {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the ids of user kubelet in /etc/subuid and /etc/subgid cannot be used: {0}")]
    Owner(String),
}

/// A pod's ids: the first one of the node's, which is root in the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Users {
    host_id: u32,
}

impl Users {
    fn mapping(self) -> Vec<api::IdMapping> {
        vec![api::IdMapping { host_id: self.host_id, container_id: 0, length: LENGTH }]
    }

    pub fn namespace(self) -> api::UserNamespace {
        let mode = api::NamespaceMode::Pod as i32;
        api::UserNamespace { mode, uids: self.mapping(), gids: self.mapping() }
    }

    /// The mount, with owners shown as the pod's users see them. What an image brings is the runtime's to show.
    pub fn shown(self, mount: api::Mount) -> api::Mount {
        if mount.image.is_some() {
            return mount;
        }
        api::Mount { uid_mappings: self.mapping(), gid_mappings: self.mapping(), ..mount }
    }
}

/// The ranges of a node.
pub struct UserRanges {
    pods_dir: PathBuf,
    /// The first id of the first range and how many there are, or why there are none.
    ranges: Result<(u32, u32), String>,
    turn: Mutex<()>,
}

impl UserRanges {
    /// `subuid` and `subgid` are the texts of the files of those names, empty where there are none: then the ids above
    /// 65535 are taken, as upstream does.
    pub fn new(pods_dir: PathBuf, max_pods: u32, subuid: &str, subgid: &str) -> Self {
        Self { pods_dir, ranges: ranges(max_pods, subuid, subgid), turn: Mutex::default() }
    }

    /// The pod's range; it is given one if it has none. Its directory is there.
    pub fn of(&self, uid: &str) -> Result<Users, UsersError> {
        let (first, count) = self.ranges.clone().map_err(UsersError::Owner)?;
        let _turn = self.turn.lock();
        let own = self.pods_dir.join(uid);
        if let Some(users) = self.read(&own)? {
            return Ok(users);
        }
        let mut taken = HashSet::new();
        let pods = fs::read_dir(&self.pods_dir).map_err(|source| failed(&self.pods_dir, source))?;
        for pod in pods {
            let pod = pod.map_err(|source| failed(&self.pods_dir, source))?.path();
            // One that cannot be read may be any range: then nobody gets one.
            taken.extend(self.read(&pod)?.map(|users| users.host_id));
        }
        let mut all = (0..count).map(|index| first + index * LENGTH);
        let host_id = all.find(|id| !taken.contains(id)).ok_or(UsersError::NoneFree)?;
        let users = Users { host_id };
        let text = serde_json::to_vec(&users).map_err(|error| failed(&own, error.into()))?;
        let written = Dir::open(&own).and_then(|dir| dir.replace(FILE, &text, 0o600));
        written.map_err(|source| failed(&own, source)).map(|()| users)
    }

    fn read(&self, pod: &Path) -> Result<Option<Users>, UsersError> {
        match Dir::open(pod).and_then(|dir| dir.read(FILE, MAX_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => {
                let users = read.and_then(|text| Ok(serde_json::from_slice(&text)?));
                users.map(Some).map_err(|source| failed(pod, source))
            }
        }
    }
}

fn failed(path: &Path, source: io::Error) -> UsersError {
    UsersError::File { path: path.join(FILE), source }
}

fn ranges(max_pods: u32, subuid: &str, subgid: &str) -> Result<(u32, u32), String> {
    let (users, groups) = (owned(subuid)?, owned(subgid)?);
    if users != groups {
        return Err("they differ".to_owned());
    }
    let Some((first, length)) = users else { return Ok((LENGTH, max_pods)) };
    if first < LENGTH || first % LENGTH != 0 || length % LENGTH != 0 {
        return Err(format!("{first} and {length} are to be multiples of {LENGTH}, and not 0"));
    }
    if length / LENGTH < max_pods || first.checked_add(length).is_none() {
        return Err(format!("{length} ids are too few for {max_pods} pods, or too many"));
    }
    Ok((first, max_pods))
}

/// The range of our user in such a file: first and length.
fn owned(text: &str) -> Result<Option<(u32, u32)>, String> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(OWNER)?.strip_prefix(':'));
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err("there is more than one range".to_owned());
    }
    let numbers = line
        .split_once(':')
        .and_then(|(first, length)| Some((first.parse().ok()?, length.trim().parse().ok()?)));
    numbers.map(Some).ok_or_else(|| format!("{line:?} is no range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(dir: &Path, max_pods: u32) -> UserRanges {
        UserRanges::new(dir.to_owned(), max_pods, "", "")
    }

    #[test]
    fn no_two_pods_share_users_and_a_range_outlives_the_kubelet() {
        let dir = tempfile::tempdir().unwrap();
        for pod in ["a", "b", "c"] {
            fs::create_dir(dir.path().join(pod)).unwrap();
        }
        let first = node(dir.path(), 2);
        assert_eq!(first.of("a").unwrap(), Users { host_id: 65_536 });
        assert_eq!(first.of("b").unwrap(), Users { host_id: 131_072 });
        assert!(matches!(first.of("c"), Err(UsersError::NoneFree)));
        let second = node(dir.path(), 2);
        assert_eq!(second.of("b").unwrap(), Users { host_id: 131_072 });
        fs::remove_dir_all(dir.path().join("a")).unwrap();
        assert_eq!(second.of("c").unwrap(), Users { host_id: 65_536 }, "what a pod left is free");
        fs::write(dir.path().join("b/userns"), "{").unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        assert!(
            matches!(node(dir.path(), 9).of("d"), Err(UsersError::File { .. })),
            "nobody knows what b has"
        );
    }

    #[test]
    fn ranges_are_those_of_the_user_kubelet() {
        let line = "root:100000:65536\nkubelet:131072:131072\n";
        assert_eq!(ranges(2, line, line).unwrap(), (131_072, 2));
        assert_eq!(ranges(110, "", "").unwrap(), (65_536, 110));
        for (users, groups) in [
            (line, ""),
            ("kubelet:1:65536", "kubelet:1:65536"),
            ("kubelet:65536:65536", "kubelet:65536:65536"),
            ("kubelet:x", "kubelet:x"),
        ] {
            assert!(ranges(2, users, groups).is_err(), "{users}");
        }
    }
}
