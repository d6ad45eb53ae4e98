//! A disk that forgets: the file system of the tests, with a volatile cache under it.
//!
//! * Pages of 4 KiB that were written and not flushed are volatile. At a cut each of them survives or not, in any order and
//!   in any of its versions since the last flush, and some survive torn, in sectors of 512 bytes.
//! * A file's size and its blocks are durable with the file's next `fsync` or `fdatasync`; before it they survive or not.
//! * Names are logged in order (see [`names`]).
//! * A flush that was answered with an error may have written some of its pages; nobody writes the others again.
//! * Killing a process loses nothing.

mod content;
mod file;
mod image;
mod luck;
mod names;
mod plan;

pub use content::{Content, PAGE, small};
pub use image::Image;
pub use luck::Luck;
pub use plan::{Failing, Plan, Request, What};

use file::File;
use names::Names;
use nix::errno::Errno;
use std::collections::HashMap;

pub const ROOT: u64 = 1;
/// Blocks of an empty disk: 4 GiB.
const BLOCKS: u64 = 1 << 20;

/// What `stat` tells.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    pub node: u64,
    pub is_dir: bool,
    pub size: u64,
    pub blocks: u64,
}

#[derive(Debug, Default)]
pub struct Disk {
    files: HashMap<u64, File>,
    names: Names,
    next: u64,
    moment: u64,
    pub plan: Option<Plan>,
    pub failing: Vec<Failing>,
    /// Blocks in all.
    pub limit: Option<u64>,
    /// Syncing a file makes names durable.
    pub files_sync_names: bool,
    /// The plan has come true: from now on nothing happens any more.
    pub stopped: bool,
}

impl Disk {
    /// Begins anew with what lies on a disk. Nodes get numbers that were never used before, so that nothing the kernel
    /// remembers is taken for one of them.
    pub fn load(&mut self, image: &Image) {
        self.files.clear();
        self.names = Names::default();
        self.names.new_dir(ROOT);
        self.next = self.next.max(ROOT + 1);
        self.plan = None;
        self.failing.clear();
        self.limit = None;
        self.stopped = false;
        for (path, content) in &image.0 {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            let dir = self.walk(above).unwrap_or(ROOT);
            let node = self.new_node();
            match content {
                None => self.names.new_dir(node),
                Some(content) => drop(self.files.insert(node, File::stable(content.clone()))),
            }
            self.names.put(dir, name, node);
        }
        self.names.sync_all();
    }

    fn walk(&self, path: &str) -> Option<u64> {
        path.split('/').filter(|name| !name.is_empty()).try_fold(ROOT, |dir, name| self.names.find(dir, name))
    }

    fn new_node(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// What the power's going leaves.
    pub fn cut(&mut self, luck: &mut Luck) -> Image {
        let mut left = HashMap::new();
        // In order, so that the same luck does the same.
        let mut nodes: Vec<_> = std::mem::take(&mut self.files).into_iter().collect();
        nodes.sort_by_key(|(node, _)| *node);
        for (node, file) in nodes {
            left.insert(node, file.cut(luck));
        }
        image(self.names.cut(luck), |node| left.get(&node).cloned())
    }

    /// What a clean shutdown of the machine leaves.
    pub fn image(&self) -> Image {
        image(self.names.cached(), |node| self.files.get(&node).map(|file| file.cached.clone()))
    }

    // ---- what every request passes

    fn enter(&mut self, request: Request, node: u64) -> Result<(), Errno> {
        if self.stopped {
            return Err(Errno::EIO);
        }
        self.moment += 1;
        if self.plan.is_none() && self.failing.is_empty() {
            return Ok(());
        }
        let path = self.names.path(node);
        let begins = request == Request::Flush && self.files.get(&node).is_some_and(File::begins);
        if let Some(plan) = &mut self.plan
            && plan.meets(request, node, &path, begins)
        {
            if !plan.after {
                self.stopped = true;
                return Err(Errno::EIO);
            }
            // It stops when this request is over.
            plan.paths = &[];
            plan.what = What::Any;
            plan.count = 0;
            plan.after = false;
        }
        match self.failing.iter_mut().find_map(|failing| failing.meets(request, &path)) {
            Some(errno) => Err(errno),
            None => Ok(()),
        }
    }

    fn file(&mut self, node: u64) -> Result<&mut File, Errno> {
        self.files.get_mut(&node).ok_or(Errno::ESTALE)
    }

    fn used(&self) -> u64 {
        self.files.values().map(|file| file.cached.blocks()).sum()
    }

    /// Blocks that are free.
    pub fn free(&self) -> u64 {
        self.limit.unwrap_or(BLOCKS).saturating_sub(self.used())
    }

    /// Leaves only so many blocks free.
    pub fn fill(&mut self, free: u64) {
        self.limit = Some(self.used() + free);
    }

    fn room_for(&self, blocks: u64) -> Result<(), Errno> {
        if self.limit.is_some() && blocks > self.free() { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    // ---- requests

    pub fn lookup(&mut self, dir: u64, name: &str) -> Result<Stat, Errno> {
        self.enter(Request::Look, dir)?;
        let node = self.names.find(dir, name).ok_or(Errno::ENOENT)?;
        self.stat_of(node)
    }

    pub fn stat(&mut self, node: u64) -> Result<Stat, Errno> {
        self.enter(Request::Look, node)?;
        self.stat_of(node)
    }

    fn stat_of(&self, node: u64) -> Result<Stat, Errno> {
        if self.names.entries(node).is_some() {
            return Ok(Stat { node, is_dir: true, size: PAGE as u64, blocks: 1 });
        }
        let content = &self.files.get(&node).ok_or(Errno::ESTALE)?.cached;
        Ok(Stat { node, is_dir: false, size: content.size, blocks: content.blocks() })
    }

    pub fn open(&mut self, node: u64) -> Result<(), Errno> {
        self.enter(Request::Look, node)
    }

    pub fn create(&mut self, dir: u64, name: &str) -> Result<Stat, Errno> {
        self.enter(Request::Name, dir)?;
        if self.names.find(dir, name).is_some() {
            return Err(Errno::EEXIST);
        }
        let node = self.new_node();
        self.files.insert(node, File::default());
        self.names.put(dir, name, node);
        self.stat_of(node)
    }

    pub fn mkdir(&mut self, dir: u64, name: &str) -> Result<Stat, Errno> {
        self.enter(Request::Name, dir)?;
        if self.names.find(dir, name).is_some() {
            return Err(Errno::EEXIST);
        }
        let node = self.new_node();
        self.names.new_dir(node);
        self.names.put(dir, name, node);
        self.stat_of(node)
    }

    /// Takes a file's name away; the file stays for those who have it open, and for a cut that brings the name back.
    pub fn unlink(&mut self, dir: u64, name: &str) -> Result<(), Errno> {
        let node = self.names.find(dir, name).ok_or(Errno::ENOENT)?;
        self.enter(Request::Name, node)?;
        if self.names.entries(node).is_some_and(|entries| !entries.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        self.names.remove(dir, name);
        Ok(())
    }

    pub fn rename(&mut self, from: (u64, &str), to: (u64, &str)) -> Result<(), Errno> {
        let node = self.names.find(from.0, from.1).ok_or(Errno::ENOENT)?;
        self.enter(Request::Name, node)?;
        let replaced = self.names.find(to.0, to.1);
        if replaced.and_then(|node| self.names.entries(node)).is_some_and(|entries| !entries.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        self.names.rename(from, to, node);
        Ok(())
    }

    /// Name, node and whether it is a directory.
    pub fn list(&mut self, dir: u64) -> Result<Vec<(String, u64, bool)>, Errno> {
        self.enter(Request::Look, dir)?;
        let entries = self.names.entries(dir).ok_or(Errno::ENOTDIR)?;
        let is_dir = |node| self.names.entries(node).is_some();
        Ok(entries.iter().map(|(name, node)| (name.clone(), *node, is_dir(*node))).collect())
    }

    pub fn read(&mut self, node: u64, offset: u64, len: u64) -> Result<Vec<u8>, Errno> {
        self.enter(Request::Look, node)?;
        Ok(self.file(node)?.cached.read(offset, len))
    }

    pub fn write(&mut self, node: u64, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.enter(Request::Write, node)?;
        let needs = self.file(node)?.needs(offset, data.len() as u64);
        self.room_for(needs)?;
        let moment = self.moment;
        self.file(node)?.write(moment, offset, data)
    }

    pub fn truncate(&mut self, node: u64, size: u64) -> Result<(), Errno> {
        self.enter(Request::Name, node)?;
        let moment = self.moment;
        self.file(node)?.truncate(moment, size);
        Ok(())
    }

    pub fn allocate(&mut self, node: u64, end: u64, keep_size: bool) -> Result<(), Errno> {
        self.enter(Request::Name, node)?;
        let has = self.file(node)?.cached.room;
        self.room_for(end.saturating_sub(has) / PAGE as u64)?;
        let moment = self.moment;
        self.file(node)?.allocate(moment, end, keep_size);
        Ok(())
    }

    /// Begins a flush of what was written up to now; the device takes its time between this and [`end_flush`](Self::end_flush).
    pub fn begin_flush(&mut self, node: u64, luck: &mut Luck) -> Result<u64, Errno> {
        let entered = self.enter(Request::Flush, node);
        let moment = self.moment;
        if !self.stopped && entered.is_err() {
            self.file(node)?.fail_flush(moment, luck);
        }
        entered.map(|()| moment)
    }

    pub fn end_flush(&mut self, node: u64, moment: u64) -> Result<(), Errno> {
        if self.stopped {
            return Err(Errno::EIO);
        }
        self.file(node)?.flush(moment);
        if self.files_sync_names {
            self.names.sync_all();
        }
        Ok(())
    }

    pub fn sync_dir(&mut self, node: u64) -> Result<(), Errno> {
        self.enter(Request::Flush, node)?;
        self.names.sync_dir(node);
        Ok(())
    }
}

fn image(dirs: &HashMap<u64, names::Entries>, content: impl Fn(u64) -> Option<Content>) -> Image {
    let mut image = Image::default();
    let mut todo = vec![(String::new(), ROOT)];
    while let Some((above, dir)) = todo.pop() {
        for (name, node) in dirs.get(&dir).into_iter().flatten() {
            let path = if above.is_empty() { name.clone() } else { format!("{above}/{name}") };
            let held = content(*node);
            if held.is_none() {
                todo.push((path.clone(), *node));
            }
            image.0.insert(path, held);
        }
    }
    image
}
