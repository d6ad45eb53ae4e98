//! Tables made by `api/generate.py` from published descriptions of the API, and their row types.

#[rustfmt::skip]
pub mod messages;
#[rustfmt::skip]
pub mod resources;
pub mod rows;
#[rustfmt::skip]
pub mod schema;

/// One resource as upstream's discovery describes it.
#[derive(Debug)]
pub struct ResourceFact {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub namespaced: bool,
    pub verbs: &'static [&'static str],
    pub subresources: &'static [SubresourceFact],
}

#[derive(Debug)]
pub struct SubresourceFact {
    pub name: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub verbs: &'static [&'static str],
}
