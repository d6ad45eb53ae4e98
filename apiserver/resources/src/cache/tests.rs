use super::*;
use coracle_store::{MemoryStore, Op, Txn};

#[tokio::test]
async fn labels_are_told_without_the_object() {
    let store = MemoryStore::new();
    let value = br#"{"kind":"Node","apiVersion":"v1","metadata":{"labels":{"a":"1","b":"2"},"name":"n"}}"#;
    let put = Op::Put { key: "nodes.//n".into(), value: value.to_vec().into() };
    store.commit(Txn { ops: vec![put], ..Txn::default() }).await.unwrap();
    let cache = Cache::start(store, Arc::new(served::NoCustomResources), Arc::default()).await.unwrap();
    let read: &dyn ObjectReader = &*cache;
    assert_eq!(read.labels("nodes.", "", "n", &["b", "c"]), [("b".to_owned(), "2".to_owned())]);
    assert!(read.labels("nodes.", "", "m", &["b"]).is_empty());
}
