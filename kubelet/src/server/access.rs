//! Which permission a request needs (upstream's kubelet authorization).

use http::Method;

/// The subresources of `nodes` that open a path; any one of them suffices.
///
/// `/pods`, `/runningpods`, `/healthz`, `/configz`, `/statusz` and `/flagz` have one of their own since KEP-2862 and fall back to `proxy`,
/// which opens everything that has none, exec and logs of containers among it.
pub(super) fn subresources(path: &str) -> &'static [&'static str] {
    const TABLE: [(&str, &[&str]); 10] = [
        ("/stats", &["stats"]),
        ("/metrics", &["metrics"]),
        ("/logs", &["log"]),
        ("/checkpoint", &["checkpoint"]),
        ("/healthz", &["healthz", "proxy"]),
        ("/pods", &["pods", "proxy"]),
        ("/runningpods", &["pods", "proxy"]),
        ("/configz", &["configz", "proxy"]),
        ("/statusz", &["statusz", "proxy"]),
        ("/flagz", &["configz", "proxy"]),
    ];
    let under =
        |base: &str| path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    TABLE.iter().find(|(base, _)| under(base)).map_or(&["proxy"], |(_, names)| names)
}

/// The verb that authorization is asked about.
pub(super) fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}
