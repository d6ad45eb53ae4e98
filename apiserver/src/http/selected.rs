//! The selectors of a request, as authorizers see them (KEP-4601).

use super::RequestInfo;
use coracle_api::selector::{FieldSelector, LabelSelector};

/// Written out; empty where there is none, or none that can be read: then the request may mean everything.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Selected {
    pub field: String,
    pub label: String,
}

impl Selected {
    /// Only lists, watches and deletions of collections select.
    pub fn of(info: &RequestInfo, query: Option<&str>) -> Self {
        let mut selected = Self::default();
        let selects = info.is_resource && matches!(info.verb, "list" | "watch" | "deletecollection");
        let Some(query) = query.filter(|query| selects && query.contains("Selector")) else {
            return selected;
        };
        // The first of each counts, empty or not, as everywhere.
        let first = |name: &str| form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name);
        if let Some((_, text)) = first("fieldSelector") {
            selected.field = FieldSelector::parse(&text).map_or_else(|_| String::new(), |s| s.to_string());
        }
        if let Some((_, text)) = first("labelSelector") {
            selected.label = LabelSelector::parse(&text).map_or_else(|_| String::new(), |s| s.to_string());
        }
        selected
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    fn of(method: Method, uri: &str) -> (String, String) {
        let uri: http::Uri = uri.parse().unwrap();
        let selected = Selected::of(&RequestInfo::new(&method, &uri), uri.query());
        (selected.field, selected.label)
    }

    #[test]
    fn lists_watches_and_deletions_of_collections_select() {
        let pods = "/api/v1/namespaces/a/pods";
        let both = "fieldSelector=spec.nodeName%3D%3Dn&labelSelector=a+in+(x,y),!b";
        let expected = ("spec.nodeName=n".to_owned(), "a in (x,y),!b".to_owned());
        assert_eq!(of(Method::GET, &format!("{pods}?{both}")), expected);
        assert_eq!(of(Method::GET, &format!("{pods}?{both}&watch=1")), expected);
        assert_eq!(of(Method::DELETE, &format!("{pods}?{both}")), expected);
        let nothing = (String::new(), String::new());
        assert_eq!(of(Method::GET, &format!("{pods}/p?{both}")), nothing);
        assert_eq!(of(Method::POST, &format!("{pods}?{both}")), nothing);
        assert_eq!(
            of(Method::GET, &format!("{pods}?fieldSelector=a&labelSelector=-")),
            nothing,
            "unreadable"
        );
        let second = format!("{pods}?fieldSelector=&fieldSelector=spec.nodeName%3Dn&labelSelector&labelSelector=a");
        assert_eq!(of(Method::GET, &second), nothing, "the first counts");
    }
}
