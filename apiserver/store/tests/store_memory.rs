//! The memory backend under the suite that every backend passes.

use coracle_store::{Limits, MemoryStore, Revision, Store, suite};
use std::sync::Arc;
use std::time::Duration;

coracle_store::store_suite!({
    let store: Arc<dyn Store> = MemoryStore::new();
    (store, ())
});

#[tokio::test]
async fn history_is_bounded() {
    let limits = Limits { revisions: 10, age: Duration::from_secs(3600), bytes: 10_000 };
    let store = MemoryStore::with_limits(limits);
    for _ in 0..30 {
        store.commit(suite::txn(vec![suite::put("a./n/1", "x")])).await.unwrap();
    }
    assert_eq!(store.oldest(), Revision(20), "by revisions");
    store.commit(suite::txn(vec![suite::put("a./n/1", suite::bytes_of(9_000))])).await.unwrap();
    store.commit(suite::txn(vec![suite::put("a./n/1", "x")])).await.unwrap();
    assert!(store.oldest() > Revision(22), "by bytes, a replaced value included: {:?}", store.oldest());
    let store = MemoryStore::with_limits(Limits { age: Duration::ZERO, ..Limits::default() });
    store.commit(suite::txn(vec![suite::put("a./n/1", "x")])).await.unwrap();
    std::thread::sleep(Duration::from_millis(2));
    store.commit(suite::txn(vec![suite::put("a./n/1", "x")])).await.unwrap();
    assert_eq!(store.oldest(), Revision(1), "by age");
}
