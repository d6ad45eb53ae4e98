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
    offer: ServedApis,
    /// Made when somebody first asks.
    pub(super) tags: OnceLock<ETags>,
    /// Of the built-in resources; the same ones for every offer of a server.
    pub(super) shares: Arc<Shares>,
}

impl Documents {
    pub fn new(offer: ServedApis, shares: Arc<Shares>) -> Self {
        Self { offer, tags: OnceLock::new(), shares }
    }
}

impl Deref for Documents {
    type Target = ServedApis;

    fn deref(&self) -> &ServedApis {
        &self.offer
    }
}

/// The present [`Documents`], made when somebody asks after a change.
pub struct Published {
    catalogue: Arc<Catalogue>,
    foreign: Arc<dyn Foreign>,
    present: Mutex<Option<(u64, u64, Arc<Documents>)>>,
    shares: Arc<Shares>,
}

impl Published {
    pub fn new(catalogue: Arc<Catalogue>, foreign: Arc<dyn Foreign>) -> Self {
        Self { catalogue, foreign, present: Mutex::default(), shares: Arc::default() }
    }

    pub fn served_apis(&self) -> Arc<Documents> {
        let (snapshot, theirs) = (self.catalogue.snapshot(), self.foreign.generation());
        let mut present = self.present.lock();
        if let Some((ours, other, offer)) = &*present
            && (*ours, *other) == (snapshot.generation, theirs)
        {
            return offer.clone();
        }
        let generation = snapshot.generation;
        let offer = ServedApis::new(catalogue(), snapshot, self.foreign.clone());
        let offer = Arc::new(Documents::new(offer, self.shares.clone()));
        *present = Some((generation, theirs, offer.clone()));
        offer
    }
}
