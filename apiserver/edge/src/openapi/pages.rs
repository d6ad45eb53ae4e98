//! Requests that are about no object: discovery, the version, the documents of service account tokens.

use super::operations::{Operation, Path, Payload, capitalized, group_word, is_built_in};
use super::parameters::*;
use coracle_api::Resource;
use coracle_api::catalogue::groups;
use std::sync::Arc;

const JSON: &[&str] = &["application/json"];
const JWKS: &[&str] = &["application/jwk-set+json"];
const VERSION: &str = "io.k8s.apimachinery.pkg.version.Info";

/// A path with the name of the OpenAPI v3 document that it stands in: `api`, `apis/apps`, `apis/apps/v1`, ...
pub struct Page {
    pub document: String,
    pub path: Path,
}

fn page(
    document: String,
    id: String,
    tag: String,
    description: &str,
    media: [&'static [&'static str]; 2],
    answer: Payload,
) -> Page {
    let operation = Operation {
        method: "get",
        action: None,
        id,
        tag,
        description: description.to_owned(),
        query: &[],
        body: None,
        consumes: media[0],
        produces: media[1],
        answer: Some(answer),
        codes: OK,
        identity: None,
    };
    let template = format!("/{document}/");
    Page { path: Path { template, kind: String::new(), operations: vec![operation] }, document }
}

fn discovery(document: String, id: String, tag: &str, kind: &str) -> Page {
    let description = match kind {
        "APIVersions" => "Says which versions of the core group are served.",
        "APIGroupList" => "Says which groups and versions are served.",
        "APIGroup" => "Says which versions of the group are served.",
        _ => "Says which resources of the version are served.",
    };
    page(document, id, tag.to_owned(), description, [OBJECTS, OBJECTS], meta(kind))
}

/// In the order of their paths. As upstream, discovery of groups and versions that consist of custom resources alone is
/// not described.
pub fn pages(resources: &[Arc<Resource>]) -> Vec<Page> {
    let text = |document: &str, id: &str, [tag, description]: [&str; 2], produces| {
        page(document.into(), id.into(), tag.into(), description, [&[], produces], Payload::Text)
    };
    let mut all = vec![
        text(
            ".well-known/openid-configuration",
            "getServiceAccountIssuerOpenIDConfiguration",
            ["WellKnown", "Says who issues tokens of service accounts, and where the keys are."],
            JSON,
        ),
        discovery("api".into(), "getCoreAPIVersions".into(), "core", "APIVersions"),
        discovery("apis".into(), "getAPIVersions".into(), "apis", "APIGroupList"),
        text(
            "openid/v1/jwks",
            "getServiceAccountIssuerOpenIDKeyset",
            ["openid", "The keys by which tokens of service accounts are checked."],
            JWKS,
        ),
        page(
            "version".into(),
            "getCodeVersion".into(),
            "version".into(),
            "Says of which version the server is.",
            [JSON, JSON],
            Payload::Named(VERSION.into()),
        ),
    ];
    let built_in: Vec<Arc<Resource>> = resources.iter().filter(|r| is_built_in(r)).cloned().collect();
    for group in groups(&built_in) {
        let (word, root) = match group.name {
            "" => ("core".to_owned(), "api".to_owned()),
            name => (group_word(name), format!("apis/{name}")),
        };
        let name = capitalized(&word);
        if !group.name.is_empty() {
            all.push(discovery(root.clone(), format!("get{name}APIGroup"), &word, "APIGroup"));
        }
        for version in group.versions {
            let id = format!("get{name}{}APIResources", capitalized(version));
            all.push(discovery(
                format!("{root}/{version}"),
                id,
                &format!("{word}_{version}"),
                "APIResourceList",
            ));
        }
    }
    all.sort_by(|a, b| a.document.cmp(&b.document));
    all
}
