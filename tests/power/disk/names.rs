//! Directories, and the order in which their changes reach the disk.
//!
//! Changes of names go through one log, as in ext4 and XFS: a cut leaves a beginning of it. Syncing a directory makes the
//! log durable up to the directory's last change. Syncing a file makes all of it durable on half of the disks, as those file
//! systems do it; on the other half a new name needs its directory synced, which is all that POSIX promises.

use super::luck::Luck;
use std::collections::{BTreeMap, HashMap};

pub type Entries = BTreeMap<String, u64>;

#[derive(Clone, Debug)]
enum Change {
    Put {
        dir: u64,
        name: String,
        node: u64,
    },
    Remove {
        dir: u64,
        name: String,
    },
    /// One step, so that no cut shows a file twice or not at all.
    Move {
        from: (u64, String),
        to: (u64, String),
        node: u64,
    },
}

impl Change {
    fn touches(&self, node: u64) -> bool {
        match self {
            Self::Put { dir, .. } | Self::Remove { dir, .. } => *dir == node,
            Self::Move { from, to, .. } => from.0 == node || to.0 == node,
        }
    }
}

#[derive(Debug, Default)]
pub struct Names {
    cached: HashMap<u64, Entries>,
    stable: HashMap<u64, Entries>,
    log: Vec<Change>,
    /// Where a node is, for paths: its directory and its name.
    places: HashMap<u64, (u64, String)>,
}

impl Names {
    pub fn entries(&self, dir: u64) -> Option<&Entries> {
        self.cached.get(&dir)
    }

    pub fn find(&self, dir: u64, name: &str) -> Option<u64> {
        self.cached.get(&dir)?.get(name).copied()
    }

    /// Without a leading slash; the root's is empty.
    pub fn path(&self, node: u64) -> String {
        match self.places.get(&node) {
            None => String::new(),
            Some((dir, name)) => match self.path(*dir) {
                above if above.is_empty() => name.clone(),
                above => format!("{above}/{name}"),
            },
        }
    }

    pub fn new_dir(&mut self, node: u64) {
        self.cached.insert(node, Entries::new());
        self.stable.insert(node, Entries::new());
    }

    pub fn put(&mut self, dir: u64, name: &str, node: u64) {
        self.change(Change::Put { dir, name: name.to_owned(), node });
    }

    pub fn remove(&mut self, dir: u64, name: &str) {
        self.change(Change::Remove { dir, name: name.to_owned() });
    }

    pub fn rename(&mut self, from: (u64, &str), to: (u64, &str), node: u64) {
        let named = |(dir, name): (u64, &str)| (dir, name.to_owned());
        self.change(Change::Move { from: named(from), to: named(to), node });
    }

    fn change(&mut self, change: Change) {
        match &change {
            Change::Put { dir, name, node } => drop(self.places.insert(*node, (*dir, name.clone()))),
            Change::Move { to, node, .. } => drop(self.places.insert(*node, to.clone())),
            Change::Remove { .. } => {}
        }
        apply(&mut self.cached, &change);
        self.log.push(change);
    }

    pub fn sync_dir(&mut self, dir: u64) {
        let upto = self.log.iter().rposition(|change| change.touches(dir)).map_or(0, |last| last + 1);
        self.commit(upto);
    }

    pub fn sync_all(&mut self) {
        self.commit(self.log.len());
    }

    fn commit(&mut self, upto: usize) {
        for change in self.log.drain(..upto) {
            apply(&mut self.stable, &change);
        }
    }

    /// The names that a cut leaves, by directory.
    pub fn cut(&mut self, luck: &mut Luck) -> &HashMap<u64, Entries> {
        // More often than not all of it is lost: that is what a missing sync of a directory shows in.
        let upto = if luck.half() { 0 } else { luck.below(self.log.len() + 1) };
        self.commit(upto);
        &self.stable
    }

    pub fn cached(&self) -> &HashMap<u64, Entries> {
        &self.cached
    }
}

fn apply(dirs: &mut HashMap<u64, Entries>, change: &Change) {
    match change {
        Change::Put { dir, name, node } => drop(dirs.entry(*dir).or_default().insert(name.clone(), *node)),
        Change::Remove { dir, name } => drop(dirs.entry(*dir).or_default().remove(name)),
        Change::Move { from, to, node } => {
            dirs.entry(from.0).or_default().remove(&from.1);
            dirs.entry(to.0).or_default().insert(to.1.clone(), *node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(names: &mut Names, seed: u64) -> Vec<String> {
        names.cut(&mut Luck::new(seed))[&1].keys().cloned().collect()
    }

    fn root() -> Names {
        let mut names = Names::default();
        names.new_dir(1);
        names
    }

    #[test]
    fn a_cut_leaves_a_beginning_of_the_log() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let mut names = root();
            names.put(1, "a", 2);
            names.sync_dir(1);
            names.put(1, "b.tmp", 3);
            names.rename((1, "b.tmp"), (1, "b"), 3);
            names.remove(1, "a");
            seen.insert(left(&mut names, seed));
        }
        let all = [vec!["a"], vec!["a", "b"], vec!["a", "b.tmp"], vec!["b"]];
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
    }

    #[test]
    fn syncing_another_directory_leaves_later_names_volatile() {
        let lost = (0..100).filter(|seed| {
            let mut names = root();
            names.new_dir(2);
            names.put(1, "dir", 2);
            names.put(2, "file", 3);
            names.put(1, "late", 4);
            names.sync_dir(2);
            let left = names.cut(&mut Luck::new(*seed));
            assert!(left[&1].contains_key("dir") && left[&2].contains_key("file"));
            !left[&1].contains_key("late")
        });
        assert!(lost.count() > 10);
    }
}
