//! Requests to resources, handed to the generic path and its answers brought into shape.

use super::list_body::{ListBody, ListHead};
use super::object_form::ObjectForm;
use super::route::Route;
use super::seats::Seats;
use super::table::{Tables, metadata_list};
use super::watch_body::{WatchBody, failed};
use super::{RequestHeaders, RequestInfo, body, large};
use crate::http::ServerState;
use crate::wire::negotiation::{Format, Shape, Wanted};
use crate::wire::respond::{GZIP_FROM_BYTES, Reply, as_gzip, error_response, warn};
use crate::wire::shape::{Include, metadata_only};
use axum::body::Body;
use coracle_access::authz::{self, Attributes, Authorizer};
use coracle_api::{ApiError, Object, Pieces, UserInfo};
use coracle_registry::decode::{Expected, delete_options};
use coracle_registry::ownership::manager_name;
use coracle_registry::patch::{Patch, check_options};
use coracle_registry::update::Part;
use coracle_registry::{Deleted, Page, Scope, WriteOptions, Written};
use coracle_resources::cache::CachedObject;
use coracle_resources::custom::CustomResource;
use http::{HeaderValue, Response, StatusCode};
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;

/// Lists up to here are sent in one piece, with their length.
const SMALL_LIST_BYTES: usize = 64 * 1024;

/// One request to one resource, on its way through.
pub struct Call<'a> {
    pub server: &'a Arc<ServerState>,
    pub info: &'a RequestInfo,
    pub user: &'a UserInfo,
    pub seats: &'a Seats,
    pub headers: &'a RequestHeaders,
    pub wanted: Wanted,
    pub route: Route,
    /// A watcher in this process, who can share the cache's bytes.
    pub pieces: Option<&'a Pieces>,
}

impl Call<'_> {
    pub async fn answer(&self, body: Body) -> Result<Response<Body>, ApiError> {
        let scope = self.scope();
        let outcome = self.answer_in(&scope, body).await;
        let warnings = std::mem::take(&mut *scope.warnings.lock());
        if warnings.is_empty() {
            return outcome;
        }
        // Of what failed, or of a list: admission warns whatever becomes of the request.
        let mut response = outcome.unwrap_or_else(|error| error_response(&error, self.wanted));
        warn(&mut response, &warnings);
        Ok(response)
    }

    /// Each verb's work is boxed: together they would make every request as large as the largest.
    async fn answer_in(&self, scope: &Scope<'_>, body: Body) -> Result<Response<Body>, ApiError> {
        if matches!(self.info.verb, "create" | "update" | "patch" | "delete" | "deletecollection") {
            scope.catch_up().await?;
        }
        let reply = match self.info.verb {
            "get" | "list" if self.is_component_statuses() => self.component_statuses(scope)?,
            "get" => {
                scope.at_least(self.info.query.get("resourceVersion").unwrap_or_default()).await?;
                return self.get(scope).await;
            }
            "list" => return Box::pin(self.list(scope)).await,
            "watch" => Box::pin(self.watch(scope)).await?,
            "deletecollection" => return Box::pin(self.delete_collection(scope, body)).await,
            "delete" => Box::pin(self.delete(scope, body)).await?,
            "create" => Box::pin(self.create(scope, body)).await?,
            "update" => Box::pin(self.update(scope, body)).await?,
            "patch" => Box::pin(self.patch(scope, body)).await?,
            _ => return Err(ApiError::method_not_allowed()),
        };
        let warnings = std::mem::take(&mut *scope.warnings.lock());
        let is_large = reply.weight() >= large::LARGE_BYTES;
        let work = || Reply { warnings, ..reply }.into_response(self.wanted);
        // It has been made, and who waits for a turn would hold it; the seat bounds how many do this.
        Ok(if is_large { large::beside(work) } else { work() })
    }

    /// Makes something of so many bytes for the answer, at its turn if they are many.
    async fn make<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        large::make(self.seats, bytes, work).await
    }

    /// Reads a body, likewise.
    pub(super) async fn read<T>(&self, body: &[u8], work: impl FnOnce() -> T) -> Result<T, ApiError> {
        large::read((self.server, self.info, self.seats), body.len(), work).await
    }

    fn scope(&self) -> Scope<'_> {
        let resource = self.route.resource();
        Scope {
            registry: &self.server.registry,
            resource,
            strategy: self.route.served.strategy(),
            namespace: if resource.namespaced { &self.info.namespace } else { "" },
            name: &self.info.name,
            subresource: &self.info.subresource,
            user: self.user,
            now: (self.server.registry.clock)(),
            warnings: Mutex::default(),
        }
    }

    /// The kind that the body of this request must have.
    pub(super) fn expected(&self) -> Expected<'_> {
        let resource = self.route.resource();
        match self.route.subresource() {
            Some(sub) => {
                let custom = self.route.served.custom().filter(|_| sub.name == "status");
                Expected { group: &sub.group, version: &sub.version, kind: &sub.kind, custom }
            }
            None => Expected {
                group: &resource.group,
                version: &resource.version,
                kind: &resource.kind,
                custom: self.route.served.custom(),
            },
        }
    }

    pub(super) fn tables(&self, scope: &Scope<'_>) -> Result<Tables, ApiError> {
        let include = Include::from_query(self.info.query.get("includeObject"))?;
        let version = self.wanted.meta_version();
        Ok(Tables { strategy: scope.strategy.clone(), include, now: scope.now, version })
    }

    /// An object in stored form as the client wants to see it.
    pub(super) fn shown(
        &self,
        scope: &Scope<'_>,
        status: StatusCode,
        object: Object,
    ) -> Result<Reply, ApiError> {
        let object = scope.to_served(object);
        let value = match self.wanted.shape {
            Shape::Object => object,
            Shape::Metadata => metadata_only(&object, self.wanted.meta_version()),
            Shape::Table => self.tables(scope)?.single(&object),
        };
        Ok(Reply::json(status, value))
    }

    /// What a write has made: from the bytes that were stored, where those are what the client wants to see.
    fn shown_written(
        &self,
        scope: &Scope<'_>,
        status: StatusCode,
        written: Written,
    ) -> Result<Reply, ApiError> {
        let Wanted { shape, format, pretty, .. } = self.wanted;
        let as_stored = (shape, format, pretty) == (Shape::Object, Format::Json, false);
        match as_stored.then(|| written.json()).flatten() {
            Some(bytes) => Ok(Reply { status, ..Reply::encoded(bytes) }),
            None => self.shown(scope, status, written.object),
        }
    }

    async fn get(&self, scope: &Scope<'_>) -> Result<Response<Body>, ApiError> {
        if self.is_sub("scale") {
            return Ok(self.shown_scale(scope, scope.get_scale().await?)?.into_response(self.wanted));
        }
        let cached = scope.get()?;
        let shown = match scope.strategy.custom().filter(|custom| !self.is_as_stored(custom, &cached)) {
            Some(custom) => Some(custom.shown(&cached, cached.revision).await?),
            None => None,
        };
        // Nothing of it is made before its turn: many may wait. What is copied as it is needs none.
        let packed = self.wanted.gzip && cached.raw.len() >= GZIP_FROM_BYTES;
        let copied = shown.is_none() && !packed && !self.wanted.pretty;
        let copied = copied && ObjectForm::new(self.wanted, scope.resource).is_some();
        let bytes = if copied { 0 } else { cached.raw.len() };
        self.make(bytes, || Ok(self.got(scope, &cached, shown)?.into_response(self.wanted))).await
    }

    /// An object as the client wants to see it; `shown` if it differs from its bytes.
    fn got(
        &self,
        scope: &Scope<'_>,
        cached: &CachedObject,
        shown: Option<Object>,
    ) -> Result<Reply, ApiError> {
        if let Some(object) = shown {
            return self.shown(scope, StatusCode::OK, object);
        }
        if self.wanted.pretty && self.wanted.shape == Shape::Object && !scope.resource.needs_conversion() {
            return Ok(Reply::raw(cached.to_json()));
        }
        if let Some(mut form) = ObjectForm::new(self.wanted, scope.resource).filter(|_| !self.wanted.pretty) {
            return Ok(Reply::encoded(form.body(cached).map_err(ApiError::internal)?));
        }
        self.shown(scope, StatusCode::OK, cached.decode_at(cached.revision))
    }

    /// Whether what this client wants to see of a custom resource stands in its bytes.
    fn is_as_stored(&self, custom: &CustomResource, object: &CachedObject) -> bool {
        match self.wanted.shape {
            Shape::Metadata => custom.is_metadata_as_stored(object),
            Shape::Object | Shape::Table => custom.is_as_stored(object),
        }
    }

    async fn list(&self, scope: &Scope<'_>) -> Result<Response<Body>, ApiError> {
        let page = scope.list(&self.info.list_options()?).await?;
        self.list_reply(scope, page).await
    }

    async fn list_reply(&self, scope: &Scope<'_>, page: Page) -> Result<Response<Body>, ApiError> {
        let Page { items, revision, next, remaining } = page;
        let resource = scope.resource;
        let wanted = self.wanted.listed(&resource.list_kind)?;
        let api_version = resource.api_version();
        let (kind, api_version) = match wanted.shape {
            Shape::Metadata => ("PartialObjectMetadataList", wanted.meta_version()),
            _ => (&*resource.list_kind, &*api_version),
        };
        let custom = scope.strategy.custom();
        let own = custom.is_some() && wanted.shape == Shape::Object;
        let head = ListHead { kind, api_version, revision: revision.0, next, remaining, custom: own };
        let as_stored = custom.is_none_or(|c| items.iter().all(|item| self.is_as_stored(c, item)));
        if let Some(form) = ObjectForm::new(wanted, resource).filter(|_| as_stored) {
            return self.spliced(&head, items, form).await;
        }
        let served = match custom {
            Some(custom) => Some(custom.served(items.iter().map(|item| (&**item, item.revision))).await?),
            None => None,
        };
        let bytes = items.iter().map(|item| item.raw.len()).sum();
        let decoded = || items.iter().map(|item| scope.to_served(item.decode_at(item.revision))).collect();
        let work = || self.decoded_list(scope, &head, served.unwrap_or_else(decoded));
        self.make(bytes, work).await
    }

    /// A list that cannot be put together from stored bytes.
    fn decoded_list(
        &self,
        scope: &Scope<'_>,
        head: &ListHead<'_>,
        objects: Vec<Object>,
    ) -> Result<Response<Body>, ApiError> {
        let value = match self.wanted.shape {
            Shape::Table => self.tables(scope)?.table(&objects, head.metadata(), true),
            Shape::Metadata => metadata_list(&objects, head, self.wanted.meta_version()),
            Shape::Object => {
                serde_json::json!({ "kind": head.kind, "apiVersion": head.api_version,
                    "metadata": head.metadata(), "items": head.items(objects) })
            }
        };
        Ok(Reply::ok(value).into_response(self.wanted))
    }

    async fn spliced(
        &self,
        head: &ListHead<'_>,
        items: Vec<Arc<CachedObject>>,
        form: ObjectForm,
    ) -> Result<Response<Body>, ApiError> {
        let size: usize = items.iter().map(|i| i.raw.len()).sum();
        let small = size <= SMALL_LIST_BYTES;
        let is_json = self.wanted.format == Format::Json;
        let pretty = is_json && self.wanted.pretty;
        let gzip = self.wanted.gzip && size >= GZIP_FROM_BYTES && !pretty;
        let body = match is_json {
            true => ListBody::json(head, items, form, gzip),
            false => ListBody::protobuf(head, items, form, gzip).await?,
        };
        if pretty {
            let work = || Reply::raw(body.to_bytes()).into_response(self.wanted);
            return Ok(self.make(size, work).await);
        }
        if small {
            return Ok(Reply::encoded(body.to_bytes()).into_response(self.wanted));
        }
        let kind = HeaderValue::from_static(self.wanted.format.media_type());
        let response = Reply::stream(Body::new(body), kind).into_response(self.wanted);
        Ok(if gzip { as_gzip(response) } else { response })
    }

    async fn watch(&self, scope: &Scope<'_>) -> Result<Reply, ApiError> {
        let wanted = self.wanted.streamed()?;
        let kind = HeaderValue::from_static(stream_type(wanted.format));
        let options = self.info.list_options()?;
        let watch = match scope.watch(&options).await {
            Ok(watch) => watch,
            // Upstream tells of lost history, and of a future, inside the stream, and clients look for it there.
            Err(error) if matches!(error.code, 410 | 504) => {
                return Ok(Reply::stream(failed(&error, wanted), kind));
            }
            Err(error) => return Err(error),
        };
        let resource = scope.resource.clone();
        let metrics = self.server.metrics().watching(&resource.group, &resource.version, &resource.plural);
        let body = WatchBody {
            watch,
            wanted,
            form: ObjectForm::new(wanted, &resource),
            tables: self.tables(scope)?,
            convert: coracle_registry::storage_version::converter(&resource, &scope.strategy),
            custom: scope.strategy.custom().cloned(),
            foreign: scope.foreign_fields(&options),
            resource,
            stop: self.server.stop.clone(),
            columns_sent: false,
            in_pieces: self.pieces.is_some(),
            metrics,
        };
        self.pieces.inspect(|pieces| pieces.promise());
        Ok(Reply::stream(body.into_body(), kind))
    }

    async fn create(&self, scope: &Scope<'_>, body: Body) -> Result<Reply, ApiError> {
        if self.route.subresource().is_some() || !scope.resource.is_stored() {
            return self.special_create(scope, body).await;
        }
        let object = self.decode(scope, body, "CreateOptions").await?;
        let options = self.write_options(scope, "CreateOptions")?;
        let created = scope.create(scope.to_stored(object), &options).await?;
        self.shown_written(scope, StatusCode::CREATED, created)
    }

    /// The body as the expected kind; what is wrong with it but tolerated becomes warnings.
    pub(super) async fn decode(
        &self,
        scope: &Scope<'_>,
        body: Body,
        options: &str,
    ) -> Result<Object, ApiError> {
        let validation = self.info.query.write_options(options)?.field_validation;
        let bytes = body::read(body).await?;
        let work = || self.expected().decode(self.headers.content_type(), &bytes, validation);
        let (object, warnings) = self.read(&bytes, work).await??;
        scope.warn(warnings);
        Ok(object)
    }

    async fn update(&self, scope: &Scope<'_>, body: Body) -> Result<Reply, ApiError> {
        let options = self.write_options(scope, "UpdateOptions")?;
        let bytes = body::read(body).await?;
        let (expected, validation) = (self.expected(), options.field_validation);
        let work = || expected.decode(self.headers.content_type(), &bytes, validation);
        let (object, warnings) = self.read(&bytes, work).await??;
        scope.warn(warnings);
        scope.check_name(&object)?;
        let mut first = Some(object);
        // Few writes are tried twice, and only those are worth another look at the body.
        let mut sent = || match first.take() {
            Some(object) => Ok(object),
            None => {
                expected.decode(self.headers.content_type(), &bytes, validation).map(|(object, _)| object)
            }
        };
        if self.is_sub("scale") {
            return self.shown_scale(scope, scope.update_scale(&options, false, |_| sent()).await?);
        }
        self.refuse_unserved()?;
        if let Some(sub) = self.sub() {
            let replace = |old: &Object| {
                let new = scope.to_stored(sent()?);
                scope.check_replacement(&new, Some(old))?;
                Ok(new)
            };
            let updated = scope.update_sub(sub, &options, replace).await?;
            return self.shown_written(scope, StatusCode::OK, updated);
        }
        let asking = self.server.authorizer.ask();
        let mut replace = |old: Option<&Object>| {
            if old.is_none() && scope.strategy.create_on_update() {
                self.may_create(scope, &*asking)?;
            }
            let new = scope.to_stored(sent()?);
            scope.check_replacement(&new, old)?;
            Ok(new)
        };
        let (updated, created) = loop {
            let outcome = scope.update(Part::Main, &options, &mut replace).await;
            // What somebody has to be asked about was not written.
            if asking.settled().await {
                break outcome?;
            }
        };
        self.shown_written(scope, if created { StatusCode::CREATED } else { StatusCode::OK }, updated)
    }

    /// The options of a write, with the manager that its fields will belong to.
    fn write_options(&self, scope: &Scope<'_>, kind: &str) -> Result<WriteOptions, ApiError> {
        let mut options = self.info.query.write_options(kind)?;
        options.field_manager = manager_name(&options.field_manager, self.headers.user_agent(), scope.user);
        Ok(options)
    }

    async fn patch(&self, scope: &Scope<'_>, body: Body) -> Result<Reply, ApiError> {
        let kind = Patch::media_type(self.headers.content_type(), scope.strategy.custom().is_some())?;
        let body = body::read(body).await?;
        let asked = self.info.query.write_options("PatchOptions")?;
        check_options(kind, &asked, self.info.query.flag("force").is_some())?;
        let options = self.write_options(scope, "PatchOptions")?;
        let patch = self.read(&body.clone(), || Patch::new(kind, body)).await??;
        let expected = self.expected();
        self.refuse_unserved()?;
        if self.is_sub("scale") {
            let apply = |scale: &Object| scope.patched_scale(&patch, &expected, scale, &options);
            let applied = patch.configuration().is_some();
            return self.shown_scale(scope, scope.update_scale(&options, applied, apply).await?);
        }
        if let Some(sub) = self.sub() {
            let patched = scope.patch_sub(sub, &patch, &expected, &options).await?;
            return self.shown_written(scope, StatusCode::OK, patched);
        }
        let asking = self.server.authorizer.ask();
        let may_create = || self.may_create(scope, &*asking);
        let (patched, created) = loop {
            let outcome = scope.patch(&patch, &expected, &options, &may_create).await;
            if asking.settled().await {
                break outcome?;
            }
        };
        self.shown_written(scope, if created { StatusCode::CREATED } else { StatusCode::OK }, patched)
    }

    /// Who creates by update or apply must be allowed to create.
    fn may_create(&self, scope: &Scope<'_>, authorizer: &dyn Authorizer) -> Result<(), ApiError> {
        self.may(scope, "create", authorizer)
    }

    fn may(&self, scope: &Scope<'_>, verb: &str, authorizer: &dyn Authorizer) -> Result<(), ApiError> {
        let resource = scope.resource;
        let attributes = Attributes {
            version: &resource.version,
            name: scope.name,
            ..Attributes::resource(self.user, verb, &resource.group, &resource.plural, scope.namespace)
        };
        authz::require(authorizer, &attributes)
    }

    async fn delete(&self, scope: &Scope<'_>, body: Body) -> Result<Reply, ApiError> {
        let bytes = body::read(body).await?;
        let sent = self.read(&bytes, || delete_body(self.headers.content_type(), &bytes)).await??;
        let options = self.info.query.delete_options(sent.as_ref())?;
        if options.ignore_read_errors && scope.is_unreadable() {
            let verb = "unsafe-delete-ignore-read-errors";
            Box::pin(self.server.authorizer.settle(|by| self.may(scope, verb, by))).await?;
            return self.deleted(scope, StatusCode::OK, scope.delete_unreadable().await?);
        }
        let deleted = scope.delete(&options).await?;
        let accepted = options.accepted && !deleted.gone;
        let status = if accepted { StatusCode::ACCEPTED } else { StatusCode::OK };
        self.deleted(scope, status, deleted)
    }

    pub(super) fn deleted(
        &self,
        scope: &Scope<'_>,
        status: StatusCode,
        deleted: Deleted,
    ) -> Result<Reply, ApiError> {
        let resource = scope.resource;
        if deleted.gone && !scope.strategy.facts().returns_deleted {
            return Ok(Reply::json(status, deleted.status(&resource.group, &resource.plural)));
        }
        self.shown(scope, status, deleted.object)
    }

    /// Answers with the list of what was deleted, each as it was before.
    async fn delete_collection(&self, scope: &Scope<'_>, body: Body) -> Result<Response<Body>, ApiError> {
        let bytes = body::read(body).await?;
        let sent = self.read(&bytes, || delete_body(self.headers.content_type(), &bytes)).await??;
        let listed = self.info.list_options()?;
        let options = self.info.query.delete_options(sent.as_ref())?;
        let page = scope.delete_collection(&options, &listed).await?;
        self.list_reply(scope, page).await
    }
}

/// JSON needs no mark that there are several documents.
fn stream_type(format: Format) -> &'static str {
    match format {
        Format::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        other => other.media_type(),
    }
}

/// `None` for an empty body.
fn delete_body(content_type: &str, bytes: &[u8]) -> Result<Option<Value>, ApiError> {
    if bytes.is_empty() { Ok(None) } else { delete_options(content_type, bytes).map(Some) }
}
