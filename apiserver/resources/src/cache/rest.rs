//! Packs what nobody reads: most objects of a cluster are written, read by those who wait for them, and then only kept.

use super::Cache;
use coracle_store::Packer;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often it is looked for what rests: a value is packed between one and two of these after it was last read. A look
/// at 10,000 objects takes a millisecond.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// A resource with fewer objects is not worth a dictionary of its own.
const OBJECTS: usize = 64;

/// Goes on for as long as there is the cache. What informers hold the bytes of stays as it is.
pub fn pack_what_rests(cache: &Arc<Cache>) {
    tokio::spawn(look_again(Arc::downgrade(cache)));
}

async fn look_again(cache: Weak<Cache>) {
    let mut packer = Packer::default();
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let Some(cache) = cache.upgrade() else { return };
        let look = move || {
            cache.pack(&mut packer);
            packer
        };
        let Ok(after) = tokio::task::spawn_blocking(look).await else { return };
        packer = after;
    }
}

impl Cache {
    /// Looks once at every object, and at what the store's history holds beside them.
    pub(super) fn pack(&self, packer: &mut Packer) {
        packer.begin();
        let all = self.state.read().all();
        for (resource, objects) in all {
            if objects.len() >= OBJECTS {
                objects.values().for_each(|object| packer.look(&resource, &object.raw));
            }
        }
        self.store.pack_history(packer);
    }
}

#[cfg(test)]
mod tests {
    use super::super::served::NoCustomResources;
    use super::*;
    use coracle_store::{MemoryStore, Op, Range, Store, Txn};

    async fn cache_of(plural: &str, count: usize) -> (Arc<MemoryStore>, Arc<Cache>) {
        let store = MemoryStore::new();
        let cache = Cache::start(store.clone(), Arc::new(NoCustomResources), Arc::default()).await.unwrap();
        for n in 0..count {
            let data = "text ".repeat(100);
            let value =
                format!(r#"{{"kind":"K","apiVersion":"v1","metadata":{{"name":"n{n}"}},"data":"{data}"}}"#);
            let put = Op::Put { key: format!("{plural}./a/n{n}").into(), value: value.into() };
            store.commit(Txn { ops: vec![put], ..Txn::default() }).await.unwrap();
        }
        (store, cache)
    }

    #[tokio::test]
    async fn store_and_cache_rest_together_and_answer_as_before() {
        let (store, cache) = cache_of("configmaps", OBJECTS).await;
        let shown =
            || cache.snapshot("configmaps.").objects.values().map(|o| o.to_json()).collect::<Vec<_>>();
        let before = shown();
        let mut packer = Packer::default();
        for _ in 0..2 {
            cache.pack(&mut packer);
        }
        let stored = store.range(Range::default()).await.unwrap().items;
        assert!(stored.iter().all(|stored| stored.value.is_packed()));
        let objects = cache.snapshot("configmaps.").objects;
        assert!(objects.values().all(|object| object.raw.is_packed()));
        assert_eq!(shown(), before);
        assert!(stored.iter().all(|stored| !stored.value.is_packed()), "they share it");
    }

    #[tokio::test]
    async fn few_objects_and_what_a_watcher_here_holds_stay() {
        let (_store, cache) = cache_of("configmaps", OBJECTS - 1).await;
        let (_other, held) = cache_of("pods", OBJECTS).await;
        let pods = held.snapshot("pods.").objects;
        let pieces: Vec<_> = pods.values().map(|pod| pod.raw.bytes()).collect();
        let mut packer = Packer::default();
        for _ in 0..3 {
            cache.pack(&mut packer);
            held.pack(&mut packer);
        }
        assert!(cache.snapshot("configmaps.").objects.values().all(|object| !object.raw.is_packed()));
        assert!(pods.values().all(|object| !object.raw.is_packed()));
        drop(pieces);
        held.pack(&mut packer);
        assert!(pods.values().all(|object| object.raw.is_packed()));
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_looked_for_as_long_as_there_is_the_cache() {
        let (_store, cache) = cache_of("configmaps", OBJECTS).await;
        pack_what_rests(&cache);
        let objects = cache.snapshot("configmaps.").objects;
        tokio::time::sleep(4 * LOOK_INTERVAL).await;
        assert!(objects.values().all(|object| object.raw.is_packed()));
        let gone = Arc::downgrade(&cache);
        drop(cache);
        tokio::time::sleep(2 * LOOK_INTERVAL).await;
        assert!(gone.upgrade().is_none());
    }
}
