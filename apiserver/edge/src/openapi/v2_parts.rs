//! A document of OpenAPI v2 in the pieces that it is sent in: the share of built-in resources as it is kept, then custom
//! resources one by one, made while they are sent, then other servers'. So a thousand definitions are never in memory
//! as one text.

use super::custom;
use super::operations::{is_built_in, paths};
use super::schema::Dialect;
use super::share::{Form, Map, Share};
use super::v2::{definitions, path_item, shared_parameters};
use super::v2_protobuf;
use super::{Documents, merge_v2};
use crate::discovery::ServedApis;
use crate::wire::gzip::Packer;
use bytes::Bytes;
use coracle_api::Resource;
use coracle_resources::custom::CustomResource;
use serde_json::{Value, json};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Long pieces are cut to this length, so that a slow reader's are small.
const PIECE_BYTES: usize = 64 * 1024;

enum Piece {
    Ready(Bytes),
    /// Of the built-in resources.
    Share(Map),
    /// Of a custom resource, by its place among those offered.
    Definitions(usize),
    Paths(usize),
}

/// The pieces that are left to send.
pub struct Parts {
    form: Form,
    share: Arc<Share>,
    custom: Vec<Arc<CustomResource>>,
    left: VecDeque<Piece>,
}

impl Parts {
    /// Takes tens of milliseconds if nobody has asked lately.
    pub fn of(offer: &Documents, form: Form) -> Self {
        let built_in: Vec<Arc<Resource>> =
            offer.resources.iter().filter(|r| is_built_in(r)).cloned().collect();
        let share = offer.shares.get(form, || Share::of(&built_in, form));
        let custom: Vec<Arc<CustomResource>> = offer.all_custom().cloned().collect();
        let theirs = theirs(offer, &built_in, &share, &custom, form);
        let mut parts = Self { form, share, custom, left: VecDeque::new() };
        let (before, between, after) = match form {
            Form::Json => json_ends(),
            Form::Protobuf => {
                let (before, after) = v2_protobuf::ends();
                (before, Vec::new(), after)
            }
        };
        parts.add(before.into());
        parts.first(Map::Definitions);
        parts.left.extend((0..parts.custom.len()).map(Piece::Definitions));
        parts.add(form.behind(Map::Definitions, &theirs.definitions));
        parts.add(between.into());
        parts.first(Map::Paths);
        parts.left.extend((0..parts.custom.len()).map(Piece::Paths));
        parts.add(form.behind(Map::Paths, &theirs.paths));
        parts.add(after.into());
        parts
    }

    /// The first members of a map.
    fn first(&mut self, map: Map) {
        if self.form == Form::Protobuf {
            let members = self.share.plain(map);
            let mut head = self.form.behind(map, members).to_vec();
            head.truncate(head.len().saturating_sub(members.len()));
            self.add(head.into());
        }
        self.left.push_back(Piece::Share(map));
    }

    fn add(&mut self, bytes: Bytes) {
        self.left.push_back(Piece::Ready(bytes));
    }

    fn made(&self, piece: Piece) -> Bytes {
        let mut members = Vec::new();
        let (map, at) = match piece {
            Piece::Ready(bytes) => return bytes,
            Piece::Share(map) => return self.share.plain(map).clone(),
            Piece::Definitions(at) => (Map::Definitions, at),
            Piece::Paths(at) => (Map::Paths, at),
        };
        let Some(custom) = self.custom.get(at) else { return Bytes::new() };
        match map {
            Map::Definitions => custom::definitions(custom, Dialect::V2)
                .iter()
                .for_each(|(name, schema)| self.form.member(&mut members, map, name, schema)),
            Map::Paths => paths(&custom.resource).iter().for_each(|path| {
                self.form.member(&mut members, map, &path.template, &path_item(path));
            }),
        }
        self.form.behind(map, &members)
    }
}

/// The document as it is sent.
pub struct Sent {
    parts: Parts,
    /// For who takes gzip, until the end.
    packer: Option<Packer>,
    /// What is to be sent next.
    ready: Bytes,
    /// And after it.
    then: Bytes,
}

impl Parts {
    /// With gzip, the first who asks has the built-in share packed, which takes tens of milliseconds.
    pub fn sent(self, gzip: bool) -> Sent {
        if gzip {
            self.share.packed(Map::Definitions);
        }
        let packer = gzip.then(Packer::default);
        Sent { parts: self, packer, ready: Bytes::new(), then: Bytes::new() }
    }
}

impl Sent {
    /// Takes the next part; false at the end.
    fn take(&mut self) -> bool {
        let part = self.parts.left.pop_front();
        match (part, &mut self.packer) {
            (Some(part), None) => self.ready = self.parts.made(part),
            (Some(Piece::Share(map)), Some(packer)) => {
                let packed = self.parts.share.packed(map);
                self.ready = packer.add_packed(packed);
                self.then = packed.blocks.clone();
            }
            (Some(part), Some(packer)) => {
                packer.add(&self.parts.made(part));
                self.ready = packer.ready().unwrap_or_default();
            }
            (None, _) => match self.packer.take() {
                Some(packer) => self.ready = packer.finish(),
                None => return false,
            },
        }
        true
    }
}

impl Iterator for Sent {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        while self.ready.is_empty() {
            self.ready = std::mem::take(&mut self.then);
            if self.ready.is_empty() && !self.take() {
                return None;
            }
        }
        Some(self.ready.split_to(self.ready.len().min(PIECE_BYTES)))
    }
}

/// What stands before the definitions, between them and the paths, and behind these.
fn json_ends() -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let info = json!({ "title": "Kubernetes", "version": coracle_component_base::version::GIT_VERSION });
    let bearer = json!({ "BearerToken": { "description": "Bearer Token authentication", "type": "apiKey",
        "name": "authorization", "in": "header" } });
    let security = json!([{ "BearerToken": [] }]);
    let parameters = Value::Object(shared_parameters());
    (
        format!("{{\"swagger\":\"2.0\",\"info\":{info},\"definitions\":{{").into_bytes(),
        b"},\"paths\":{".to_vec(),
        format!("}},\"parameters\":{parameters},\"securityDefinitions\":{bearer},\"security\":{security}}}")
            .into_bytes(),
    )
}

#[derive(Default)]
struct Theirs {
    definitions: Vec<u8>,
    paths: Vec<u8>,
}

/// What other servers add: merged with those of our definitions alone that they have under the same name. Their paths lie
/// below their own groups and versions, of which we have none.
fn theirs(
    offer: &ServedApis,
    built_in: &[Arc<Resource>],
    share: &Share,
    custom: &[Arc<CustomResource>],
    form: Form,
) -> Theirs {
    let documents = offer.foreign.openapi_v2();
    let mut theirs = Theirs::default();
    if documents.is_empty() {
        return theirs;
    }
    let mut whole = json!({ "definitions": common(&documents, built_in, share, custom), "paths": {} });
    let ours: BTreeSet<String> =
        whole["definitions"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    documents.iter().for_each(|document| merge_v2(&mut whole, document));
    for (name, schema) in whole["definitions"].as_object().into_iter().flatten() {
        if !ours.contains(name) {
            form.member(&mut theirs.definitions, Map::Definitions, name, schema);
        }
    }
    for (template, item) in whole["paths"].as_object().into_iter().flatten() {
        form.member(&mut theirs.paths, Map::Paths, template, item);
    }
    theirs
}

/// Our definitions of the names that others use too.
fn common(
    documents: &[Arc<Value>],
    built_in: &[Arc<Resource>],
    share: &Share,
    custom: &[Arc<CustomResource>],
) -> Value {
    let is_theirs = |name: &str| documents.iter().any(|document| document["definitions"].get(name).is_some());
    let mut found = serde_json::Map::new();
    if share.names.iter().any(|name| is_theirs(name)) {
        definitions(built_in, &mut |name, schema| {
            if is_theirs(name) {
                found.insert(name.to_owned(), schema.clone());
            }
        });
    }
    for custom in custom {
        let r = &custom.resource;
        if [&r.kind, &r.list_kind].iter().any(|kind| is_theirs(&custom::name(&r.group, &r.version, kind))) {
            found.extend(custom::definitions(custom, Dialect::V2));
        }
    }
    found.into()
}
