//! When the power goes, or a process is stopped, and which requests fail.

use nix::errno::Errno;

/// A request of the kernel, as far as plans tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Changes nothing.
    Look,
    Write,
    Flush,
    /// Names, sizes and blocks.
    Name,
}

/// Which requests count.
#[derive(Clone, Debug)]
pub enum What {
    Any,
    Change,
    Flush,
    /// Flushes of a file whose first page is among what they flush: a journal's segment at its beginning. Counting begins
    /// with the `skip`th such flush, and goes on with the same file's next flushes.
    Begin {
        skip: u64,
    },
}

/// The power goes (or the process stops) at the `count`th request that counts, 0 being the first, before it has any effect;
/// or at the next request after it, whatever that is.
#[derive(Clone, Debug)]
pub struct Plan {
    pub what: What,
    /// Beginnings of the paths that count; none: every path.
    pub paths: &'static [&'static str],
    pub count: u64,
    pub after: bool,
    /// The file that `What::Begin` has settled on.
    pub(super) file: Option<u64>,
}

impl Plan {
    pub fn new(what: What, paths: &'static [&'static str], count: u64) -> Self {
        Self { what, paths, count, after: false, file: None }
    }

    pub fn after(self, after: bool) -> Self {
        Self { after, ..self }
    }

    /// Whether this is the request.
    pub(super) fn meets(&mut self, request: Request, node: u64, path: &str, begins: bool) -> bool {
        if !matches(self.paths, path) {
            return false;
        }
        let counts = match &mut self.what {
            What::Any => true,
            What::Change => request != Request::Look,
            What::Flush => request == Request::Flush,
            What::Begin { .. } if request != Request::Flush => false,
            What::Begin { skip } => match self.file {
                Some(file) => file == node,
                None if !begins => false,
                None if *skip > 0 => {
                    *skip -= 1;
                    false
                }
                None => {
                    self.file = Some(node);
                    true
                }
            },
        };
        let met = counts && self.count == 0;
        if counts && !met {
            self.count -= 1;
        }
        met
    }
}

pub fn matches(paths: &[&str], path: &str) -> bool {
    paths.is_empty() || paths.iter().any(|start| path.starts_with(start))
}

/// Requests of a kind that fail: `times` of them, after the first `skip`.
#[derive(Clone, Debug)]
pub struct Failing {
    pub request: Request,
    pub paths: &'static [&'static str],
    pub skip: u64,
    pub times: u64,
    pub errno: Errno,
}

impl Failing {
    pub(super) fn meets(&mut self, request: Request, path: &str) -> Option<Errno> {
        if request != self.request || !matches(self.paths, path) || self.times == 0 {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.times -= 1;
        Some(self.errno)
    }
}
