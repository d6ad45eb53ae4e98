//! The status page at `/ui/`: static files, handed to anybody, that ask the API as whoever logs in by a token.
//!
//! They hold nothing of the cluster. What they show is what the API answers to the token.

use axum::body::Body;
use http::header::{
    CACHE_CONTROL, CONTENT_TYPE, LOCATION, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, Response, StatusCode};

/// Name, type and contents; all of them together are bounded by a test.
const FILES: [(&str, &str, &str); 4] = [
    ("", "text/html; charset=utf-8", include_str!("index.html")),
    ("ui.css", "text/css; charset=utf-8", include_str!("ui.css")),
    ("api.js", "text/javascript; charset=utf-8", include_str!("api.js")),
    ("ui.js", "text/javascript; charset=utf-8", include_str!("ui.js")),
];

/// Nothing from anywhere else, nothing inline, nobody around it: text of the cluster that became markup by mistake could
/// still run nothing and reach nobody.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// What is served under this path; `None` for all that is not the page's.
pub fn page(path: &str) -> Option<Response<Body>> {
    let name = path.strip_prefix("/ui")?;
    if name.is_empty() {
        return redirect();
    }
    let name = name.strip_prefix('/')?;
    let (_, kind, contents) = FILES.iter().find(|(known, ..)| *known == name)?;
    let headers = [
        (CONTENT_TYPE, *kind),
        (HeaderName::from_static("content-security-policy"), POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (CACHE_CONTROL, "no-cache"),
    ];
    let mut response = Response::builder();
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(Body::from(*contents)).ok()
}

fn redirect() -> Option<Response<Body>> {
    Response::builder()
        .status(StatusCode::PERMANENT_REDIRECT)
        .header(LOCATION, "/ui/")
        .body(Body::empty())
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of all files together: what a telephone loads in a second over a poor network.
    const MOST_BYTES: usize = 60 << 10;

    #[test]
    fn the_files_are_few_and_small_and_nothing_else_is_served() {
        assert!(FILES.iter().map(|(_, _, contents)| contents.len()).sum::<usize>() <= MOST_BYTES);
        for (name, kind, contents) in FILES {
            let response = page(&format!("/ui/{name}")).unwrap();
            assert_eq!(response.headers()[CONTENT_TYPE], kind);
            assert_eq!(response.headers()["content-security-policy"], POLICY);
            assert!(!contents.is_empty());
        }
        assert_eq!(page("/ui").unwrap().headers()[LOCATION], "/ui/");
        for path in ["/ui/x", "/uix", "/ui/../api", "/api", "/ui//"] {
            assert!(page(path).is_none(), "{path}");
        }
    }

    #[test]
    fn nothing_of_the_cluster_becomes_markup() {
        for (name, _, contents) in FILES {
            for way in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "localStorage",
                "style=",
                "http://",
            ] {
                assert!(!contents.contains(way), "{way} in {name}");
            }
            let inline = contents.contains("onclick=")
                || contents.contains("<script>")
                || contents.contains("<style>");
            assert!(!inline, "{name}");
        }
    }
}
