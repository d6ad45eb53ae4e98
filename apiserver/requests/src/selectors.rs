//! The selectors of a list, watch or deletion of a collection, parsed once: what the authorizer is asked about is what is
//! selected by.

use super::Query;
use coracle_api::{ApiError, FieldSelector, LabelSelector};

/// The field and the label selector of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    /// Everything where there is none, or none that can be read.
    pub fields: FieldSelector,
    pub labels: LabelSelector,
    /// Written out for those who go by text; empty where everything is selected.
    pub field_text: String,
    pub label_text: String,
    /// Why one of them cannot be read: then the request is refused, if it is authorized for everything.
    unreadable: Option<String>,
}

impl Selectors {
    /// `None` where the query selects by nothing.
    pub fn of(query: &Query) -> Option<Self> {
        let (labels, fields) = (query.get("labelSelector"), query.get("fieldSelector"));
        if labels.unwrap_or_default().is_empty() && fields.unwrap_or_default().is_empty() {
            return None;
        }
        let mut selectors = Self::default();
        match LabelSelector::parse(labels.unwrap_or_default()) {
            Ok(labels) => selectors.labels = labels,
            Err(error) => selectors.unreadable = Some(error.to_string()),
        }
        match FieldSelector::parse(fields.unwrap_or_default()) {
            Ok(fields) => selectors.fields = fields,
            Err(error) => selectors.unreadable = selectors.unreadable.or(Some(error.to_string())),
        }
        selectors.label_text = selectors.labels.to_string();
        selectors.field_text = selectors.fields.to_string();
        Some(selectors)
    }

    /// The name that is selected by, if it is one that an object can have.
    pub fn name(&self) -> Option<&str> {
        self.fields.exact("metadata.name").filter(|name| !name.is_empty() && !name.contains(['/', '%']))
    }

    /// 400 where one of them cannot be read.
    pub fn check_readable(&self) -> Result<(), ApiError> {
        self.unreadable.as_deref().map_or(Ok(()), |why| Err(ApiError::bad_request(why)))
    }

    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str) -> Option<(String, String)> {
        Selectors::of(&Query::new(Some(query))).map(|s| (s.field_text, s.label_text))
    }

    #[test]
    fn the_first_of_each_counts() {
        let found = |field: &str, label: &str| Some((field.to_owned(), label.to_owned()));
        for (query, expected) in [
            (
                "fieldSelector=spec.nodeName%3D%3Dn&labelSelector=a+in+(x,y),!b",
                found("spec.nodeName=n", "a in (x,y),!b"),
            ),
            ("fieldSelector=a%3Db&fieldSelector=c%3Dd", found("a=b", "")),
            ("fieldSelector=&fieldSelector=c%3Dd", None),
            ("fieldSelector&labelSelector=a", found("", "a")),
            ("fieldSelector=a&labelSelector=b", found("", "b")),
            ("fieldSelector=a%3Db&labelSelector=-", found("a=b", "")),
            ("watch=1", None),
        ] {
            assert_eq!(of(query), expected, "{query}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for query in ["fieldSelector=a", "labelSelector=-", "fieldSelector=a&labelSelector=b"] {
            let selectors = Selectors::of(&Query::new(Some(query))).unwrap();
            assert_eq!(selectors.check_readable().unwrap_err().code, 400, "{query}");
        }
    }

    #[test]
    fn names() {
        let name = |text: &str| {
            let query =
                form_urlencoded::Serializer::new(String::new()).append_pair("fieldSelector", text).finish();
            Selectors::of(&Query::new(Some(&query))).and_then(|s| s.name().map(str::to_owned))
        };
        assert_eq!(name("metadata.name=a"), Some("a".to_owned()));
        assert_eq!(name("x!=y,metadata.name==a"), Some("a".to_owned()));
        for none in [
            "metadata.name=",
            "metadata.name!=a",
            r"x!=\,metadata.name=a",
            " metadata.name=a",
            "metadata.name=a/b",
        ] {
            assert_eq!(name(none), None, "{none}");
        }
    }
}
