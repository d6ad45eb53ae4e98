//! What is served at this moment, with what OpenAPI makes of it.

use super::{ETags, Shares};
use crate::discovery::{Foreign, ServedApis};
use coracle_api::catalogue::catalogue;
use coracle_resources::catalogue::Catalogue;
use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// Everything that is served at one moment, and the tags of its documents. Never changed; made anew when something else
/// is served.
pub struct Documents {
    served: ServedApis,
    /// Made when somebody first asks.
    pub(super) tags: OnceLock<ETags>,
    /// Of the built-in resources; the same ones for all documents of a server.
    pub(super) shares: Arc<Shares>,
}

impl Documents {
    pub fn new(served: ServedApis, shares: Arc<Shares>) -> Self {
        Self { served, tags: OnceLock::new(), shares }
    }
}

impl Deref for Documents {
    type Target = ServedApis;

    fn deref(&self) -> &ServedApis {
        &self.served
    }
}

/// The present [`Documents`], made when somebody asks after a change.
pub struct DocumentCache {
    catalogue: Arc<Catalogue>,
    foreign: Arc<dyn Foreign>,
    present: Mutex<Option<(u64, u64, Arc<Documents>)>>,
    shares: Arc<Shares>,
}

impl DocumentCache {
    pub fn new(catalogue: Arc<Catalogue>, foreign: Arc<dyn Foreign>) -> Self {
        Self { catalogue, foreign, present: Mutex::default(), shares: Arc::default() }
    }

    pub fn present(&self) -> Arc<Documents> {
        let (snapshot, theirs) = (self.catalogue.snapshot(), self.foreign.generation());
        let mut present = self.present.lock();
        if let Some((ours, other, served)) = &*present
            && (*ours, *other) == (snapshot.generation, theirs)
        {
            return served.clone();
        }
        let generation = snapshot.generation;
        let served = ServedApis::new(catalogue(), snapshot, self.foreign.clone());
        let served = Arc::new(Documents::new(served, self.shares.clone()));
        *present = Some((generation, theirs, served.clone()));
        served
    }
}
