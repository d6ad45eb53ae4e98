//! Query parameters of connect requests, read as upstream's conversion functions read them.

use coracle_api::ApiError;

/// The decoded pairs of a query string, in order.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(query: Option<&str>) -> Self {
        Self(form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect())
    }

    pub(super) fn first(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    pub(super) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// True when present with any value but `0` and `false`.
    pub(super) fn flag(&self, key: &str) -> bool {
        self.first(key).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// An integer; absent and empty are `None`.
    pub(super) fn integer(&self, key: &str) -> Result<Option<i64>, ApiError> {
        match self.first(key) {
            None | Some("") => Ok(None),
            Some(value) => value.parse().map(Some).map_err(|_| {
                ApiError::bad_request(format!("strconv.ParseInt: parsing \"{value}\": invalid syntax"))
            }),
        }
    }
}
