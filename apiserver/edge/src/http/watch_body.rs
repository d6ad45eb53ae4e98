//! The body of a watch: one JSON document a line, or protobuf messages with their length in front.

use super::object_form::{ObjectForm, event_of};
use super::table::Tables;
use super::watch_stream::WatchStream;
use crate::wire::negotiation::{Shape, Wanted};
use crate::wire::shape::metadata_only;
use axum::body::Body;
use bytes::Bytes;
use coracle_api::{ApiError, FieldSelector, Object, Resource};
use coracle_component_base::metrics::WatchMetrics;
use coracle_registry::selection::matches;
use coracle_registry::storage_version::Convert;
use coracle_registry::{Message, Watch};
use coracle_resources::cache::{CachedObject, Seen};
use coracle_resources::custom::CustomResource;
use coracle_store::Revision;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub struct WatchBody {
    pub watch: Watch,
    pub resource: Arc<Resource>,
    pub wanted: Wanted,
    /// How objects are written that need no decoding; `None` if all do.
    pub form: Option<ObjectForm>,
    pub tables: Tables,
    /// For resources that are stored in another form than this one.
    pub convert: Option<Convert>,
    /// Set where objects may differ from their bytes.
    pub custom: Option<Arc<CustomResource>>,
    /// What is still to be asked of objects once a webhook has converted them.
    pub foreign: Option<FieldSelector>,
    /// Ends the watch at once.
    pub stop: CancellationToken,
    /// The first event of a table watch brings the columns.
    pub columns_sent: bool,
    /// Objects may come in the pieces of [`coracle_api::Pieces`].
    pub in_pieces: bool,
    pub metrics: WatchMetrics,
}

impl WatchBody {
    pub fn into_body(self) -> Body {
        Body::new(WatchStream::new(self))
    }

    /// The message as it is sent, unless it has to be waited for: then it comes back.
    pub(super) fn encode_now(&mut self, message: Message) -> Result<Piece, Message> {
        if self.foreign.is_some() || self.differing(&message).is_some() {
            return Err(message);
        }
        Ok(self.finished(message))
    }

    fn finished(&mut self, message: Message) -> Piece {
        let last = matches!(message, Message::Error(_));
        let bytes = self.written(message);
        self.metrics.sent(bytes.len());
        Piece { bytes, last }
    }

    /// The message in pieces, where this watcher takes them and they need no waiting.
    pub(super) fn pieces(&self, message: &Message) -> Option<[Bytes; 3]> {
        let form = self.form.as_ref().filter(|_| self.in_pieces && self.foreign.is_none())?;
        if self.differing(message).is_some() {
            return None;
        }
        let pieces = match message {
            Message::Initial(object) => form.pieces(Seen::Added, object, object.revision),
            Message::Event((seen, event)) => form.pieces(*seen, event.object(*seen)?, event.revision),
            Message::Bookmark(..) | Message::Error(_) => None,
        }?;
        self.metrics.sent(pieces.iter().map(Bytes::len).sum());
        Some(pieces)
    }

    /// The message as it looks to a selector by fields of a version that only a webhook can make.
    async fn selected(&self, message: Message) -> Result<Option<Message>, ApiError> {
        let (Some(fields), Some(custom)) = (&self.foreign, &self.custom) else { return Ok(Some(message)) };
        let matching = async |object: &Arc<CachedObject>| -> Result<bool, ApiError> {
            Ok(matches(fields, &custom.shown(object, object.revision).await?))
        };
        match message {
            Message::Initial(object) => {
                let found = matching(&object).await?;
                Ok(found.then_some(Message::Initial(object)))
            }
            Message::Event((seen, event)) => {
                let now = match &event.current {
                    Some(object) if seen != Seen::Deleted => matching(object).await?,
                    _ => false,
                };
                let before = match &event.previous {
                    Some(object) if seen != Seen::Added => matching(object).await?,
                    _ => false,
                };
                let seen = match (before, now) {
                    (false, true) => Seen::Added,
                    (true, true) => Seen::Modified,
                    (true, false) => Seen::Deleted,
                    (false, false) => return Ok(None),
                };
                Ok(Some(Message::Event((seen, event))))
            }
            other => Ok(Some(other)),
        }
    }

    /// The message as it is sent; custom resources may have to be converted by a webhook.
    pub(super) async fn encode(&mut self, message: Message) -> Piece {
        let message = match self.selected(message).await {
            Ok(Some(message)) => message,
            Ok(None) => return Piece { bytes: Bytes::new(), last: false },
            Err(error) => Message::Error(error),
        };
        let Some((custom, seen, object, revision)) = self.differing(&message) else {
            return self.finished(message);
        };
        match custom.shown(&object, revision).await {
            Ok(object) => {
                let bytes = self.shaped(seen, object);
                self.metrics.sent(bytes.len());
                Piece { bytes, last: false }
            }
            Err(error) => self.finished(Message::Error(error)),
        }
    }

    /// An object that is not shown as it is stored.
    fn differing(&self, message: &Message) -> Option<Differing> {
        let custom = self.custom.as_ref()?;
        let (seen, object, revision) = match message {
            Message::Initial(object) => (Seen::Added, object, object.revision),
            Message::Event((seen, event)) => (*seen, event.object(*seen)?, event.revision),
            Message::Bookmark(..) | Message::Error(_) => return None,
        };
        let as_stored = match self.wanted.shape {
            Shape::Metadata => custom.is_metadata_as_stored(object),
            Shape::Object | Shape::Table => custom.is_as_stored(object),
        };
        (!as_stored).then(|| (custom.clone(), seen, object.clone(), revision))
    }

    fn written(&mut self, message: Message) -> Bytes {
        if let Some(form) = &mut self.form {
            match &message {
                Message::Initial(object) => return form.frame(Seen::Added, object, object.revision),
                Message::Event((seen, event)) => return form.event(*seen, event),
                Message::Bookmark(..) | Message::Error(_) => {}
            }
        }
        match message {
            Message::Initial(object) => self.shaped(Seen::Added, object.decode_at(object.revision)),
            Message::Event((seen, event)) => match event.object(seen) {
                Some(object) => self.shaped(seen, object.decode_at(event.revision)),
                None => Bytes::new(),
            },
            Message::Bookmark(revision, initial_end) => self.bookmark(revision.0, initial_end),
            Message::Error(error) => event_of(self.wanted.format, "ERROR", &error.to_status()),
        }
    }

    fn shaped(&mut self, seen: Seen, object: Object) -> Bytes {
        let object = match &self.convert {
            None => object,
            Some(convert) => convert(object),
        };
        let shown = self.shape_of(&object);
        event_of(self.wanted.format, seen.as_str(), &shown)
    }

    fn shape_of(&mut self, object: &Object) -> Value {
        match self.wanted.shape {
            Shape::Object => object.clone(),
            Shape::Metadata => metadata_only(object, self.wanted.meta_version()),
            Shape::Table => {
                let with_columns = !std::mem::replace(&mut self.columns_sent, true);
                let version = object["metadata"]["resourceVersion"].clone();
                self.tables.now = jiff::Timestamp::now();
                self.tables.table([object], json!({ "resourceVersion": version }), with_columns)
            }
        }
    }

    fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let mut metadata = json!({ "resourceVersion": revision.to_string(), "creationTimestamp": null });
        if initial_end {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = json!({ "kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": metadata });
        let shown = self.shape_of(&object);
        event_of(self.wanted.format, "BOOKMARK", &shown)
    }
}

/// A watch that ends before it began: its only event is the error.
pub fn failed(error: &ApiError, wanted: Wanted) -> Body {
    Body::from(event_of(wanted.format, "ERROR", &error.to_status()))
}

type Differing = (Arc<CustomResource>, Seen, Arc<CachedObject>, Revision);

pub(super) struct Piece {
    pub bytes: Bytes,
    /// The watch is over with it.
    pub last: bool,
}
