//! What must hold of any request, however it is written. For the fuzz target and the test beside it.

use super::RequestInfo;
use coracle_api::{FieldSelector, LabelSelector};
use form_urlencoded::Serializer;
use http::{Method, Uri};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// Path and query, as they stand in the first line of a request. Whether they name a resource.
///
/// # Panics
/// Where the request can be taken for two.
#[must_use]
pub fn request(bytes: &[u8]) -> bool {
    let Ok(uri) = Uri::try_from(bytes) else { return false };
    METHODS.iter().fold(false, |any, method| {
        let info = RequestInfo::new(method, &uri);
        if info.is_resource {
            plain(&info);
            selects_what_is_authorized(&info);
            means_the_same_written_plainly(method, &info);
        }
        any | info.is_resource
    })
}

/// Nothing in it is more than one segment, or leads elsewhere.
fn plain(info: &RequestInfo) {
    assert!(info.check_path().is_ok());
    let parts = [&info.group, &info.version, &info.namespace, &info.resource, &info.name, &info.subresource];
    for part in parts {
        assert!(!part.contains('/') && !matches!(part.as_str(), "." | ".."), "{info:?}");
    }
    assert!(!info.resource.is_empty() && (info.subresource.is_empty() || !info.name.is_empty()), "{info:?}");
    let decoded = info.rest.split('/').map(|segment| percent_decode_str(segment).decode_utf8_lossy());
    assert!(decoded.into_iter().all(|segment| segment != ".."), "{info:?}");
}

/// The options, the texts that authorizers go by, and the name.
fn selects_what_is_authorized(info: &RequestInfo) {
    if let Some(selectors) = info.selectors.as_deref() {
        assert!(matches!(info.verb, "list" | "watch" | "deletecollection"), "{info:?}");
        assert_eq!(FieldSelector::parse(&selectors.field_text).as_ref(), Ok(&selectors.fields));
        let labels = LabelSelector::parse(&selectors.label_text).map(|labels| labels.to_string());
        assert_eq!(labels.as_ref(), Ok(&selectors.label_text));
    }
    if let Ok(options) = info.list_options() {
        assert_eq!(options.selectors, info.selectors);
    }
    if info.by_selector {
        let selected =
            info.selectors.as_deref().and_then(|selectors| selectors.fields.exact("metadata.name"));
        assert_eq!(selected, Some(&*info.name));
    }
}

/// The same request in the one plain way to write it.
fn means_the_same_written_plainly(method: &Method, info: &RequestInfo) {
    let mut path = if info.group.is_empty() { "/api".to_owned() } else { "/apis".to_owned() };
    let old_watch = info.verb == "watch" && !(info.is_collection() && info.query.flag("watch") == Some(true));
    let name = if info.by_selector { "" } else { &info.name };
    let namespace = if info.within_namespace { ["namespaces", &info.namespace] } else { ["", ""] };
    let watch = if old_watch { "watch" } else { "" };
    let steps = [
        &info.group,
        &info.version,
        watch,
        namespace[0],
        namespace[1],
        &info.resource,
        name,
        &info.subresource,
    ];
    for step in steps.into_iter().filter(|step| !step.is_empty()) {
        path.push('/');
        path.extend(utf8_percent_encode(step, NON_ALPHANUMERIC));
    }
    let query = Serializer::new(String::new()).extend_pairs(info.query.pairs()).finish();
    let again = RequestInfo::new(method, &format!("{path}?{query}").parse().expect("a URI"));
    let what = |info: &RequestInfo| {
        let names =
            [&info.group, &info.version, &info.namespace, &info.resource, &info.name, &info.subresource];
        (info.verb, names.map(Clone::clone), info.by_selector, info.within_namespace, info.selectors.clone())
    };
    assert_eq!(what(&again), what(info), "{path}?{query}");
    assert!(again.query.pairs().eq(info.query.pairs()));
}

pub fn request_seeds() -> Vec<Vec<u8>> {
    [
        "/api/v1/namespaces/n/pods?fieldSelector=spec.nodeName%3Dx&labelSelector=a+in+(b,c)&watch=1",
        "/api/v1/watch/namespaces/n/pods/p?resourceVersion=5",
        "/apis/apps/v1/namespaces/n/deployments/d/scale?dryRun=All&fieldManager=m",
        "/api/v1/namespaces/n/services/https:s:80/proxy/a/../b%2Fc?d=e;f",
        "/api/v1/secrets?fieldSelector=type!%3D%5C,metadata.name%3Da&fieldSelector=metadata.name%3Db",
        "/api/v1/namespaces/n/status",
        "/apis/example.com/v1/namespaces/n/",
        "/api/v1/nodes/n/proxy/%2e%2e/x",
    ]
    .map(|seed| seed.as_bytes().to_vec())
    .to_vec()
}
