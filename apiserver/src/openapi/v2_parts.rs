//! A document of OpenAPI v2 in the pieces that it is sent in: the share of built-in resources as it is kept, then custom
//! resources one by one, made while they are sent, then other servers'. So a thousand definitions are never in memory
//! as one text.

use super::custom;
use super::operations::{is_built_in, paths};
use super::pages::pages;
use super::schema::Dialect;
use super::share::{Form, Map, Share};
use super::v2::{definitions, path_item};
use super::v2_protobuf;
use crate::aggregation::merge_v2;
use crate::custom::CustomResource;
use crate::discovery::Offer;
use bytes::Bytes;
use coracle_api::Resource;
use serde_json::{Value, json};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Long pieces are cut to this length, so that whoever packs them does not hold a thread up.
const PIECE_BYTES: usize = 64 * 1024;

enum Piece {
    Ready(Bytes),
    /// Of a custom resource, by its place among those offered.
    Definitions(usize),
    Paths(usize),
}

/// The pieces that are left to send.
pub struct Parts {
    form: Form,
    custom: Vec<Arc<CustomResource>>,
    left: VecDeque<Piece>,
}

impl Parts {
    /// Takes tens of milliseconds if nobody has asked lately.
    pub fn of(offer: &Offer, form: Form) -> Self {
        let (built_in, added): (Vec<Arc<Resource>>, Vec<Arc<Resource>>) =
            offer.resources.iter().cloned().partition(|r| is_built_in(r));
        let share = offer.shares.get(form, || Share::of(&built_in, form));
        let custom: Vec<Arc<CustomResource>> = offer.all_custom().cloned().collect();
        let theirs = theirs(offer, &built_in, &share, &custom, form);
        let discovery = discovery(&added, &share, form);
        let mut parts = Self { form, custom, left: VecDeque::new() };
        let (before, between, after) = match form {
            Form::Json => json_ends(),
            Form::Protobuf => {
                let (before, after) = v2_protobuf::ends();
                (before, Vec::new(), after)
            }
        };
        parts.add(before.into());
        parts.first(Map::Definitions, &share.definitions);
        parts.left.extend((0..parts.custom.len()).map(Piece::Definitions));
        parts.add(form.behind(Map::Definitions, &theirs.definitions));
        parts.add(between.into());
        parts.first(Map::Paths, &share.paths);
        parts.add(form.behind(Map::Paths, &discovery));
        parts.left.extend((0..parts.custom.len()).map(Piece::Paths));
        parts.add(form.behind(Map::Paths, &theirs.paths));
        parts.add(after.into());
        parts
    }

    /// The first members of a map.
    fn first(&mut self, map: Map, members: &Bytes) {
        if self.form == Form::Protobuf {
            let mut head = self.form.behind(map, members).to_vec();
            head.truncate(head.len().saturating_sub(members.len()));
            self.add(head.into());
        }
        self.add(members.clone());
    }

    fn add(&mut self, mut bytes: Bytes) {
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
            self.left.push_back(Piece::Ready(piece));
        }
    }

    fn made(&self, piece: Piece) -> Bytes {
        let mut members = Vec::new();
        let (map, at) = match piece {
            Piece::Ready(bytes) => return bytes,
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

impl Iterator for Parts {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let piece = self.left.pop_front()?;
        Some(self.made(piece))
    }
}

/// What stands before the definitions, between them and the paths, and behind these.
fn json_ends() -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let info = json!({ "title": "Kubernetes", "version": crate::discovery::GIT_VERSION });
    let bearer = json!({ "BearerToken": { "description": "Bearer Token authentication", "type": "apiKey",
        "name": "authorization", "in": "header" } });
    let security = json!([{ "BearerToken": [] }]);
    (
        format!("{{\"swagger\":\"2.0\",\"info\":{info},\"definitions\":{{").into_bytes(),
        b"},\"paths\":{".to_vec(),
        format!("}},\"securityDefinitions\":{bearer},\"security\":{security}}}").into_bytes(),
    )
}

/// Discovery of the groups and versions that custom resources bring.
fn discovery(added: &[Arc<Resource>], share: &Share, form: Form) -> Vec<u8> {
    let mut members = Vec::new();
    for page in pages(added).iter().filter(|page| !share.templates.contains(&page.path.template)) {
        form.member(&mut members, Map::Paths, &page.path.template, &path_item(&page.path));
    }
    members
}

#[derive(Default)]
struct Theirs {
    definitions: Vec<u8>,
    paths: Vec<u8>,
}

/// What other servers add: merged with those of our definitions alone that they have under the same name. Their paths lie
/// below their own groups and versions, of which we have none.
fn theirs(
    offer: &Offer,
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
