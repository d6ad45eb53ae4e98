//! Which representation the client wants, from its Accept header.
//!
//! See <https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources>.

use super::RequestHeaders;
use coracle_api::{ApiError, protobuf};
use coracle_listen::accept::{self, Clause};
use coracle_registry::Query;

/// In what shape the objects of an answer are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    #[default]
    Object,
    /// `as=Table`, rows for printing.
    Table,
    /// `as=PartialObjectMetadata` or `as=PartialObjectMetadataList`.
    Metadata,
}

/// How an answer is serialized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Json,
    Yaml,
    Protobuf,
}

impl Format {
    /// In the order in which wildcards choose, and in which a refusal names them.
    const ALL: [Self; 3] = [Self::Json, Self::Yaml, Self::Protobuf];

    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => protobuf::MEDIA_TYPE,
        }
    }

    /// YAML has no form in which one document can be told from the next while they come.
    pub fn streams(self) -> bool {
        self != Self::Yaml
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub shape: Shape,
    pub format: Format,
    /// Errors have one shape only, so the clause that is taken for them may be another one.
    pub error_format: Format,
    /// Tables and metadata are asked for in version v1beta1 instead of v1.
    pub beta: bool,
    /// `as=PartialObjectMetadata`, which a list cannot be shown as.
    pub single: bool,
    /// Indented, as `?pretty` or a browser or curl gets it.
    pub pretty: bool,
    pub gzip: bool,
    /// Whether some clause takes the object as it is, whatever the first one asks for.
    pub plain: bool,
}

/// What a clause asks for, if it can be had.
#[derive(Clone, Copy)]
struct Choice {
    shape: Shape,
    format: Format,
    beta: bool,
    single: bool,
    pretty: bool,
}

impl Wanted {
    /// The first clause that can be served, by quality. `resource` says whether an object of the API is asked for,
    /// which has other shapes and formats than JSON; anything else is not negotiated here.
    pub fn new(headers: &RequestHeaders, query: &Query, resource: bool) -> Result<Self, ApiError> {
        Self::of(headers, headers.accept(), query, resource)
    }

    /// As [`new`](Self::new), as if the client accepted this.
    pub fn of(
        headers: &RequestHeaders,
        accept: &str,
        query: &Query,
        resource: bool,
    ) -> Result<Self, ApiError> {
        let gzip = headers.gzip;
        let pretty = wants_pretty(headers, query);
        if !resource {
            return Ok(Self { pretty, gzip, ..Self::default() });
        }
        let clauses = accept::clauses(accept);
        if accept.is_empty() {
            return Ok(Self { pretty, gzip, ..Self::default() });
        }
        let chosen = first(&clauses, choice);
        let Choice { shape, format, beta, single, pretty: asked } =
            chosen.ok_or_else(|| ApiError::not_acceptable(&Format::ALL.map(Format::media_type)))?;
        let plain = first(&clauses, |c, f| choice(c, f).filter(|c| c.shape == Shape::Object));
        let error_format = plain.map_or(Format::Json, |c| c.format);
        let plain = plain.is_some();
        Ok(Self { shape, format, error_format, beta, single, pretty: pretty || asked, gzip, plain })
    }

    /// As [`new`](Self::new) for custom resources, which have no form as protobuf; their metadata has.
    pub fn of_custom(headers: &RequestHeaders, query: &Query) -> Result<Self, ApiError> {
        let wanted = Self::new(headers, query, true)?;
        let has_form = |c: &Choice| c.shape != Shape::Object || c.format != Format::Protobuf;
        if wanted.shape != Shape::Object || wanted.format != Format::Protobuf {
            return Ok(wanted);
        }
        let chosen =
            first(&accept::clauses(headers.accept()), |clause, f| choice(clause, f).filter(has_form));
        let Choice { shape, format, beta, single, pretty } =
            chosen.ok_or_else(|| ApiError::not_acceptable(&Format::ALL.map(Format::media_type)))?;
        Ok(Self { shape, format, beta, single, pretty: wanted.pretty || pretty, ..wanted })
    }

    /// 406 for what cannot be a stream.
    pub fn streamed(self) -> Result<Self, ApiError> {
        if self.format.streams() {
            return Ok(self);
        }
        let types = Format::ALL.into_iter().filter(|f| f.streams());
        let types: Vec<String> = types.map(|f| format!("{};stream=watch", f.media_type())).collect();
        Err(ApiError::not_acceptable(&types.iter().map(String::as_str).collect::<Vec<_>>()))
    }

    /// 406 for a list that is asked for as the metadata of one object.
    pub fn listed(self, list_kind: &str) -> Result<Self, ApiError> {
        if !self.single {
            return Ok(self);
        }
        let message =
            format!("you requested PartialObjectMetadata, but the requested object is a list ({list_kind})");
        Err(ApiError::new(406, "NotAcceptable", message))
    }

    /// 406 for what has neither metadata nor columns, when nothing else is asked for.
    pub fn shapeless(self) -> Result<(), ApiError> {
        if self.shape == Shape::Object || self.plain {
            return Ok(());
        }
        Err(ApiError::not_acceptable(&Format::ALL.map(Format::media_type)))
    }

    /// As error messages are written to this client.
    pub fn for_errors(self) -> Self {
        Self { shape: Shape::Object, format: self.error_format, ..self }
    }

    /// Group and version of tables and metadata.
    pub fn meta_version(self) -> &'static str {
        if self.beta { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" }
    }
}

fn first(clauses: &[Clause<'_>], choose: impl Fn(&Clause<'_>, Format) -> Option<Choice>) -> Option<Choice> {
    clauses.iter().find_map(|clause| {
        Format::ALL.into_iter().filter(|f| clause.covers(f.media_type())).find_map(|f| choose(clause, f))
    })
}

fn choice(clause: &Clause<'_>, format: Format) -> Option<Choice> {
    let stream = clause.parameter("stream");
    if !stream.is_empty() && (stream != "watch" || !format.streams()) {
        return None;
    }
    if !matches!(clause.parameter("sv"), "" | "v1") {
        return None;
    }
    let (name, group, version) = (clause.parameter("as"), clause.parameter("g"), clause.parameter("v"));
    let known = group == "meta.k8s.io" && matches!(version, "v1" | "v1beta1");
    let shape = match name {
        "" if group.is_empty() && version.is_empty() => Shape::Object,
        // Cells are any JSON, which a message cannot hold.
        "Table" if known && format != Format::Protobuf => Shape::Table,
        "PartialObjectMetadata" | "PartialObjectMetadataList" if known => Shape::Metadata,
        _ => return None,
    };
    let pretty = clause.parameter("pretty") == "1";
    Some(Choice {
        shape,
        format,
        beta: version == "v1beta1",
        single: name == "PartialObjectMetadata",
        pretty,
    })
}

fn wants_pretty(headers: &RequestHeaders, query: &Query) -> bool {
    query.flag("pretty").unwrap_or_else(|| {
        let agent = headers.user_agent();
        ["curl", "Wget", "Mozilla/5.0"].iter().any(|tool| agent.starts_with(tool))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;
    use http::header::{ACCEPT, HeaderName, USER_AGENT};

    fn with(name: HeaderName, value: &str) -> RequestHeaders {
        RequestHeaders::of(&HeaderMap::from_iter([(name, value.parse().unwrap())]))
    }

    fn wanted(accept: &str) -> Result<Wanted, ApiError> {
        Wanted::new(&with(ACCEPT, accept), &Query::default(), true)
    }

    fn shape(accept: &str) -> Result<(Shape, Format), u16> {
        wanted(accept).map(|w| (w.shape, w.format)).map_err(|e| e.code)
    }

    #[test]
    fn takes_the_first_that_is_served() {
        use Format::{Json, Protobuf, Yaml};
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(shape(kubectl), Ok((Shape::Table, Json)));
        assert_eq!(
            shape("application/vnd.kubernetes.protobuf,application/json"),
            Ok((Shape::Object, Protobuf))
        );
        assert_eq!(shape("application/json;as=Table;v=v9;g=meta.k8s.io"), Err(406));
        assert_eq!(shape("*/*"), Ok((Shape::Object, Json)));
        assert_eq!(shape("application/yaml;q=0.9,text/html"), Ok((Shape::Object, Yaml)));
        assert_eq!(shape("application/json;q=0.5,application/yaml"), Ok((Shape::Object, Yaml)));
        assert_eq!(shape("application/cbor"), Err(406));
        assert_eq!(shape("application/cbor,application/json"), Ok((Shape::Object, Json)));
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(shape(metadata), Ok((Shape::Metadata, Protobuf)));
        assert_eq!(shape("application/json;as=PartialObjectMetadata"), Err(406));
    }

    #[test]
    fn tables_are_no_messages() {
        let table = "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1";
        assert_eq!(shape(table), Err(406));
        let with_fallback = format!("{table},application/json;as=Table;g=meta.k8s.io;v=v1beta1");
        let wanted = wanted(&with_fallback).unwrap();
        assert_eq!((wanted.shape, wanted.format, wanted.beta), (Shape::Table, Format::Json, true));
    }

    #[test]
    fn errors_take_a_clause_without_a_shape() {
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(wanted(metadata).unwrap().error_format, Format::Json);
        let plain = format!("{metadata},application/vnd.kubernetes.protobuf");
        assert_eq!(wanted(&plain).unwrap().error_format, Format::Protobuf);
    }

    #[test]
    fn refusals_name_what_there_is() {
        let error = wanted("application/cbor").unwrap_err();
        assert_eq!(
            error.message,
            "only the following media types are accepted: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf"
        );
        let error = wanted("application/yaml").unwrap().streamed().unwrap_err();
        assert_eq!(
            error.message,
            "only the following media types are accepted: application/json;stream=watch, \
             application/vnd.kubernetes.protobuf;stream=watch"
        );
        assert_eq!(shape("application/yaml;stream=watch"), Err(406));
    }

    #[test]
    fn pretty_for_people() {
        let (headers, none) = (with(USER_AGENT, "curl/8"), RequestHeaders::of(&HeaderMap::new()));
        assert!(Wanted::new(&headers, &Query::default(), true).unwrap().pretty);
        assert!(!Wanted::new(&headers, &Query::new(Some("pretty=0")), true).unwrap().pretty);
        assert!(Wanted::new(&none, &Query::new(Some("pretty=true")), true).unwrap().pretty);
    }
}
