//! Values of Kubernetes' own libraries; the functions that make and read them stand with the libraries.

/// The parts of a URL. Host and port are as written, brackets of IPv6 kept in `host`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Url {
    pub(crate) scheme: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
}

/// A version; build metadata says nothing about order and is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub(crate) numbers: [u64; 3],
    pub(crate) pre: Vec<String>,
}

pub(crate) type Check = fn(&str) -> Vec<String>;

/// A named format, which says of a text what is wrong with it.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    pub(crate) name: &'static str,
    pub(crate) check: Check,
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
