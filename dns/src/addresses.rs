//! Which Services and EndpointSlices have an address, so that a question by address decodes those alone.

use coracle_client::{Delta, Informer, Kind, ObjectKey};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The objects of one kind by their addresses.
#[derive(Default)]
pub struct Addresses(RwLock<HashMap<IpAddr, Vec<ObjectKey>>>);

impl Addresses {
    /// Follows an informer for as long as this is held.
    fn follow<K>(informer: &Informer<K>, addresses: fn(&K) -> Vec<IpAddr>) -> Arc<Self>
    where
        K: Kind,
    {
        let index = Arc::new(Self::default());
        let kept = Arc::downgrade(&index);
        informer.on_change_while(move |delta: &Delta<K>| {
            let Some(index) = kept.upgrade() else { return false };
            let of = |object: Option<&Arc<K>>| object.map(|object| addresses(object)).unwrap_or_default();
            let key = delta.object().map(|object| ObjectKey::of(&**object));
            index.change(&key.unwrap_or_default(), &of(delta.old.as_ref()), &of(delta.new.as_ref()));
            true
        });
        index
    }

    /// Of the cluster IPs of Services.
    pub fn of_services(informer: &Informer<Service>) -> Arc<Self> {
        Self::follow(informer, |service| {
            let Some(spec) = &service.spec else { return Vec::new() };
            let all = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip);
            let mut found: Vec<IpAddr> = all.filter_map(|ip| ip.parse().ok()).collect();
            found.sort_unstable();
            found.dedup();
            found
        })
    }

    /// Of endpoints.
    pub fn of_slices(informer: &Informer<EndpointSlice>) -> Arc<Self> {
        Self::follow(informer, |slice| {
            let endpoints = slice.endpoints.iter().flatten();
            let mut found: Vec<IpAddr> =
                endpoints.flat_map(|e| &e.addresses).filter_map(|address| address.parse().ok()).collect();
            found.sort_unstable();
            found.dedup();
            found
        })
    }

    fn change(&self, key: &ObjectKey, old: &[IpAddr], new: &[IpAddr]) {
        let mut all = self.0.write();
        for ip in old {
            if let Some(keys) = all.get_mut(ip) {
                keys.retain(|held| held != key);
                if keys.is_empty() {
                    all.remove(ip);
                }
            }
        }
        for ip in new {
            all.entry(*ip).or_default().push(key.clone());
        }
        if all.capacity() > 4 * all.len().max(16) {
            all.shrink_to_fit();
        }
    }

    pub fn at(&self, ip: IpAddr) -> Vec<ObjectKey> {
        self.0.read().get(&ip).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_went_are_forgotten() {
        let (index, ip) = (Addresses::default(), |n| IpAddr::from([10, 0, 0, n]));
        let key = |name: &str| ObjectKey::new("a", name);
        index.change(&key("x"), &[], &[ip(1), ip(2)]);
        index.change(&key("y"), &[], &[ip(2)]);
        assert_eq!(index.at(ip(2)), [key("x"), key("y")]);
        index.change(&key("x"), &[ip(1), ip(2)], &[ip(3)]);
        assert_eq!(
            (index.at(ip(1)), index.at(ip(2)), index.at(ip(3))),
            (vec![], vec![key("y")], vec![key("x")])
        );
        index.change(&key("y"), &[ip(2)], &[]);
        assert!(index.at(ip(2)).is_empty());
    }
}
