//! The server blocks of a configuration at work: who is asked for which names, and what they have said.

use crate::cache::Cache;
use crate::configuration::{Configuration, View, is_below};
use crate::forward::Forwarder;
use crate::metrics::Metrics;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// One server block at work.
pub struct ActiveView {
    pub settings: View,
    pub forwarder: Option<Forwarder>,
    pub cache: Option<Cache>,
}

impl ActiveView {
    /// The zone as labels have it.
    pub fn zone_label(&self) -> &str {
        if self.settings.zone.is_empty() { "." } else { &self.settings.zone }
    }

    /// Who is asked for this name, if anybody.
    pub fn forwarder_of(&self, name: &str) -> Option<&Forwarder> {
        self.forwarder.as_ref().filter(|forwarder| forwarder.serves(name))
    }
}

/// All of them, the longest names first.
#[derive(Default)]
pub struct Views(Vec<Arc<ActiveView>>);

impl Views {
    /// `own` are addresses of ourselves, which are never asked.
    pub fn new(configuration: &Configuration, own: &BTreeSet<IpAddr>, metrics: &Arc<Metrics>) -> Self {
        let active = |settings: &View| {
            let forwarder = settings.forward.clone();
            Arc::new(ActiveView {
                forwarder: forwarder.map(|forward| Forwarder::new(forward, own.clone(), metrics.clone())),
                cache: settings.cache.clone().map(Cache::new),
                settings: settings.clone(),
            })
        };
        let mut views: Vec<_> = configuration.views.iter().map(active).collect();
        views.sort_by_key(|view| std::cmp::Reverse(view.settings.zone.len()));
        Self(views)
    }

    /// The block that is for a name in lower case, without the final dot.
    pub fn of(&self, name: &str) -> Option<&Arc<ActiveView>> {
        self.0.iter().find(|view| is_below(name, &view.settings.zone))
    }

    pub fn all(&self) -> impl Iterator<Item = &ActiveView> {
        self.0.iter().map(AsRef::as_ref)
    }
}
