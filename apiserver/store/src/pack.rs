//! Packing values: each with a dictionary made of others of its resource, which are mostly written by the same hand.

use super::value::{Dictionary, Packed, Value};
use lz4_flex::block::{compress_into_with_dict, get_maximum_output_size};
use std::collections::HashMap;
use std::sync::Arc;

/// Of plain bytes, packed at one look: some 50 ms of work on one core. What is left waits for the next look.
const LOOK_BYTES: usize = 16 << 20;

/// Smaller ones take as much beside them as could be saved.
const VALUE_BYTES: usize = 256;

/// What a dictionary may grow to. It is read before each value that is packed, which costs a few microseconds then.
const DICTIONARY_BYTES: usize = 8 << 10;

/// One value is no more of a dictionary than this, so that it has room for several shapes.
const SAMPLE_BYTES: usize = 3 << 10;

/// A value that does not get this many times smaller is unlike the dictionary.
const ALIKE: usize = 3;

/// After so many more that were unlike it than like it a full dictionary is begun anew: objects look otherwise now.
const MISSES: u32 = 64;

/// Keeps what a look learns for the next one.
#[derive(Default)]
pub struct Packer {
    /// By `<plural>.<group>`.
    known: HashMap<Box<str>, Known>,
    room: Vec<u8>,
    /// What is left of [`LOOK_BYTES`].
    left: usize,
}

#[derive(Default)]
struct Known {
    dictionary: Arc<Dictionary>,
    misses: u32,
}

impl Packer {
    /// Begins a look at everything. Dictionaries that no value uses any more go.
    pub fn begin(&mut self) {
        self.left = LOOK_BYTES;
        self.known.retain(|_, known| Arc::strong_count(&known.dictionary) > 1);
        self.room = Vec::new();
    }

    /// Packs a value of a resource if it has rested.
    pub fn look(&mut self, resource: &str, value: &Value) {
        if self.left == 0 || !value.look() {
            return;
        }
        if !self.known.contains_key(resource) {
            self.known.insert(resource.into(), Known::default());
        }
        let Some(known) = self.known.get_mut(resource) else { return };
        let room = &mut self.room;
        let tried = value.pack(|plain| known.pack(plain, room));
        self.left = self.left.saturating_sub(tried);
    }
}

impl Known {
    fn pack(&mut self, plain: &[u8], room: &mut Vec<u8>) -> Option<Packed> {
        if plain.len() < VALUE_BYTES {
            return None;
        }
        let mut packed = packed(plain, &self.dictionary, room)?;
        if packed.bytes.len() * ALIKE <= plain.len() {
            self.misses = self.misses.saturating_sub(1);
        } else if self.learn(plain) {
            packed = self::packed(plain, &self.dictionary, room)?;
        }
        let smaller = packed.bytes.len() + plain.len() / 4 < plain.len();
        (smaller && packed.try_unpack().is_some_and(|back| back == plain)).then_some(packed)
    }

    /// Makes a value that is unlike the others a part of the dictionary; says whether it is one now.
    fn learn(&mut self, plain: &[u8]) -> bool {
        self.misses += 1;
        let sample = &plain[..plain.len().min(SAMPLE_BYTES)];
        let known = &self.dictionary.0;
        let words = if known.len() + sample.len() <= DICTIONARY_BYTES {
            [&**known, sample].concat()
        } else if self.misses > MISSES {
            self.misses = 0;
            sample.to_vec()
        } else {
            return false;
        };
        self.dictionary = Arc::new(Dictionary(words.into()));
        true
    }
}

fn packed(plain: &[u8], dictionary: &Arc<Dictionary>, room: &mut Vec<u8>) -> Option<Packed> {
    let len = u32::try_from(plain.len()).ok()?;
    room.resize(get_maximum_output_size(plain.len()), 0);
    let packed = compress_into_with_dict(plain, room, &dictionary.0).ok()?;
    let bytes = [&len.to_le_bytes()[..], &room[..packed]].concat().into();
    Some(Packed { bytes, dictionary: dictionary.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryStore, Op, Revision, Store, Txn};
    use proptest::prelude::*;

    fn event(n: usize) -> String {
        format!(
            r#"{{"kind":"Event","apiVersion":"v1","metadata":{{"name":"pod-{n}.18a{n:05x}","namespace":"default","uid":"{:032x}","creationTimestamp":"2026-01-01T00:{:02}:{:02}Z","managedFields":[{{"manager":"coracle","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:count":{{}},"f:firstTimestamp":{{}},"f:involvedObject":{{}},"f:lastTimestamp":{{}},"f:message":{{}},"f:reason":{{}},"f:source":{{"f:component":{{}}}},"f:type":{{}}}}}}]}},"involvedObject":{{"kind":"Pod","namespace":"default","name":"pod-{n}","apiVersion":"v1"}},"reason":"Scheduled","message":"Successfully assigned default/pod-{n} to node-{}","type":"Normal"}}"#,
            n.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            n / 60 % 60,
            n % 60,
            n % 1000,
        )
    }

    fn looked_at_twice(packer: &mut Packer, values: &[Value]) {
        for _ in 0..2 {
            packer.begin();
            values.iter().for_each(|value| packer.look("events.", value));
        }
    }

    #[test]
    fn values_of_one_hand_become_a_third() {
        let values: Vec<Value> = (0..1000).map(|n| Value::compact(event(n).as_bytes())).collect();
        let mut packer = Packer::default();
        looked_at_twice(&mut packer, &values);
        assert!(values.iter().all(Value::is_packed));
        let (plain, held) = values.iter().fold((0, 0), |(p, h), v| (p + v.len(), h + v.held_len()));
        assert!(held * 3 < plain, "{plain} bytes became {held}");
        for (n, value) in values.iter().enumerate() {
            assert_eq!(value.bytes(), event(n));
        }
        packer.begin();
        assert!(packer.known.is_empty(), "no value needs the dictionary any more");
    }

    #[test]
    fn a_look_is_bounded_and_the_next_goes_on() {
        let values: Vec<Value> = (0..40).map(|n| Value::compact(event(n).repeat(700).as_bytes())).collect();
        let mut packer = Packer::default();
        looked_at_twice(&mut packer, &values);
        let done = || values.iter().filter(|value| value.is_packed()).count();
        let first = done();
        assert!((1..40).contains(&first), "{first}");
        packer.begin();
        values.iter().for_each(|value| packer.look("events.", value));
        assert!(done() > first);
    }

    #[test]
    fn a_dictionary_stays_small_and_follows_the_times() {
        let mut known = Known::default();
        let mut room = Vec::new();
        let shape = |shape: char, n: usize| {
            let field = |f: usize| format!("\"{shape}{}OfThisSort\":\"{shape}\",", f * f * 7919);
            let fields: String = (0..30).map(field).collect();
            format!("{{{fields}\"z\":{n}}}")
        };
        for era in 'a'..='z' {
            for n in 0..200 {
                let text = shape(era, n);
                let packed = known.pack(text.as_bytes(), &mut room);
                assert!(packed.is_none_or(|p| p.unpack() == text.as_bytes()));
                assert!(known.dictionary.0.len() <= DICTIONARY_BYTES);
            }
            let last = known.pack(shape(era, 777).as_bytes(), &mut room).expect("it is worth it");
            assert!(last.bytes.len() * ALIKE < last.plain_len(), "{era}");
        }
    }

    #[tokio::test]
    async fn history_is_packed_and_the_present_is_not() {
        let store = MemoryStore::new();
        for n in 0..10 {
            let put = Op::Put { key: "events./a/b".into(), value: event(n).into() };
            store.commit(Txn { ops: vec![put], ..Txn::default() }).await.unwrap();
        }
        let mut packer = Packer::default();
        for _ in 0..2 {
            packer.begin();
            store.pack_history(&mut packer);
        }
        let mut watch = store.watch("", Revision(0)).unwrap();
        for n in 0..10 {
            let value = watch.recv().await.unwrap().changes[0].value.clone().unwrap();
            assert_eq!((value.is_packed(), value.bytes()), (n < 9, event(n).into()));
        }
    }

    proptest! {
        #[test]
        fn whatever_is_packed_comes_back(values in proptest::collection::vec(
            (proptest::collection::vec(0u8..4, 0..700), any::<bool>()), 1..12)
        ) {
            let (mut known, mut room) = (Known::default(), Vec::new());
            for (plain, noise) in values {
                let plain: Vec<u8> =
                    if noise { plain.iter().map(|b| b.wrapping_mul(97)).collect() } else { plain };
                if let Some(packed) = known.pack(&plain, &mut room) {
                    prop_assert_eq!(packed.unpack(), plain);
                }
            }
        }
    }
}
