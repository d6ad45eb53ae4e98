//! `proxy` of pods, services and nodes: a reverse proxy with all methods, streaming bodies and upgrades.

use super::backend::{BackendError, KubeletClient, not_allowed};
use super::relocate::Links;
use super::targets::{self, Name};
use super::{Target, forward, headers, html};
use axum::body::{Body, Bytes};
use coracle_api::ApiError;
use coracle_requests::ObjectReader;
use flate2::Compression;
use flate2::bufread::{DeflateDecoder, GzDecoder};
use flate2::write::{DeflateEncoder, GzEncoder};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, LOCATION};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, StreamBody};
use std::io::{self, Read, Write};

/// Longer HTML pages are passed on with their links as they are: a page has to be held whole to be changed.
const LONGEST_PAGE_BYTES: usize = 8 << 20;

pub(super) async fn proxy(
    request: Request<Body>,
    target: Target<'_>,
    reader: &dyn ObjectReader,
    kubelets: &KubeletClient,
) -> Result<Response<Body>, ApiError> {
    headers::refuse_service_worker(request.headers())?;
    let name = Name::parse(target)?;
    let backend = targets::backend(&name, target, reader, kubelets)?;
    let path = request.uri().path();
    // Up to and including `/proxy`, and what follows it, still encoded.
    let (prefix, rest) = path.split_at_checked(target.rest_at).unwrap_or((path, ""));
    let (prefix, rest) = (prefix.to_owned(), rest.to_owned());
    let upgrade = headers::upgrade_of(request.headers()).is_some();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if rest.is_empty() && reads && !upgrade {
        return redirect_to_slash(request.uri());
    }
    let (mut parts, body) = request.into_parts();
    let (host, head) = (headers::host_of(&parts), parts.method == Method::HEAD);
    let mut forwarded = headers::for_backend(&parts);
    headers::add_forwarded(&mut forwarded, &parts);
    // The backend sees the name that the client knows, unless it is a kubelet.
    let shown = host.filter(|_| target.resource != "nodes");
    forwarded.extend(shown.clone().map(|host| (HOST, host)));
    let path = if rest.is_empty() { "/" } else { &rest };
    let query = parts.uri.query().unwrap_or_default();
    parts.headers = forwarded;
    parts.uri = super::pods::joined(path, query).parse().map_err(ApiError::internal)?;
    parts.version = http::Version::HTTP_11;
    let sent = forward::forward(Request::from_parts(parts, body), &backend, &kubelets.ends).await;
    let mut response = sent.map_err(failed)?;
    headers::remove_rights_of_pages(response.headers_mut());
    if upgrade {
        return Ok(response);
    }
    let shown = shown.as_ref().and_then(|host| host.to_str().ok()).unwrap_or_default();
    let links = Links::new(&prefix, backend.authority(), shown.to_owned());
    relink(response, &links, head).await
}

fn failed(error: BackendError) -> ApiError {
    match error {
        BackendError::NoUpgrade(_) => ApiError::internal(error),
        BackendError::NotAllowed { .. } => not_allowed(),
        error => ApiError::unavailable(format!("error trying to reach service: {error}")),
    }
}

/// A page at `.../proxy` could not use relative links.
fn redirect_to_slash(uri: &Uri) -> Result<Response<Body>, ApiError> {
    let location = super::pods::joined(&format!("{}/", uri.path()), uri.query().unwrap_or_default());
    let location = HeaderValue::from_str(&location).map_err(ApiError::internal)?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// Makes redirects and links of HTML pages lead through the proxy.
async fn relink(mut response: Response<Body>, links: &Links, head: bool) -> Result<Response<Body>, ApiError> {
    if let Some(location) = response.headers().get(LOCATION).and_then(|v| v.to_str().ok()) {
        if let Ok(value) = HeaderValue::from_str(&links.rewrite(location)) {
            response.headers_mut().insert(LOCATION, value);
        }
        return Ok(response);
    }
    let Some(coding) = coding_of_page(response.headers()).filter(|_| !head) else { return Ok(response) };
    let (mut parts, body) = response.into_parts();
    match whole(body).await {
        Page::Whole(page) => {
            let page = coding.rewritten(&page, links).map_err(|error| {
                ApiError::unavailable(format!("error trying to reach service: rewriting the page: {error}"))
            })?;
            parts.headers.insert(CONTENT_LENGTH, page.len().into());
            Ok(Response::from_parts(parts, page.into()))
        }
        Page::TooLong(body) => Ok(Response::from_parts(parts, body)),
    }
}

/// How an HTML page is packed, if the answer is one that can be looked into.
fn coding_of_page(headers: &HeaderMap) -> Option<Coding> {
    let text = |name| headers.get(name).and_then(|v: &HeaderValue| v.to_str().ok());
    let kind = text(CONTENT_TYPE).unwrap_or_default().split(';').next().unwrap_or_default().trim();
    Coding::of(text(CONTENT_ENCODING)).filter(|_| kind == "text/html")
}

enum Page {
    Whole(Vec<u8>),
    /// What was read of it already comes again.
    TooLong(Body),
}

async fn whole(mut body: Body) -> Page {
    let mut read = Vec::new();
    loop {
        let next = match body.frame().await {
            None => return Page::Whole(read),
            Some(Ok(frame)) => frame.into_data().ok(),
            // The client gets as much as came, and then the error.
            Some(Err(error)) => return Page::TooLong(again(read, Some(error), body)),
        };
        read.extend_from_slice(&next.unwrap_or_default());
        if read.len() > LONGEST_PAGE_BYTES {
            return Page::TooLong(again(read, None, body));
        }
    }
}

fn again(read: Vec<u8>, error: Option<axum::Error>, rest: Body) -> Body {
    let start = futures::stream::iter([Ok(http_body::Frame::data(Bytes::from(read)))]);
    let error = futures::stream::iter(error.map(Err));
    let rest = futures::stream::unfold(rest, |mut rest| async { Some((rest.frame().await?, rest)) });
    Body::new(StreamBody::new(futures::StreamExt::chain(futures::StreamExt::chain(start, error), rest)))
}

/// How a page is packed; other ways than these cannot be looked into.
#[derive(Clone, Copy)]
enum Coding {
    Plain,
    Gzip,
    Deflate,
}

impl Coding {
    fn of(header: Option<&str>) -> Option<Self> {
        match header {
            None | Some("") => Some(Self::Plain),
            Some("gzip") => Some(Self::Gzip),
            Some("deflate") => Some(Self::Deflate),
            _ => None,
        }
    }

    fn rewritten(self, page: &[u8], links: &Links) -> io::Result<Vec<u8>> {
        let link = |link: &str| links.rewrite(link);
        match self {
            Self::Plain => Ok(html::rewrite(page, link)),
            Self::Gzip => {
                let page = html::rewrite(&unpacked(GzDecoder::new(page))?, link);
                let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
                packed.write_all(&page)?;
                packed.finish()
            }
            Self::Deflate => {
                let page = html::rewrite(&unpacked(DeflateDecoder::new(page))?, link);
                let mut packed = DeflateEncoder::new(Vec::new(), Compression::fast());
                packed.write_all(&page)?;
                packed.finish()
            }
        }
    }
}

/// A small file can unpack to any size.
fn unpacked(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let limit = u64::try_from(LONGEST_PAGE_BYTES).unwrap_or(u64::MAX);
    reader.take(limit + 1).read_to_end(&mut page)?;
    if page.len() > LONGEST_PAGE_BYTES {
        return Err(io::Error::other("the page is too long once unpacked"));
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> Links {
        Links::new("/p", "b:1".to_owned(), String::new())
    }

    async fn relinked(headers: &[(&str, &str)], body: impl Into<Body>) -> Response<Body> {
        let mut response = Response::builder();
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        relink(response.body(body.into()).unwrap(), &links(), false).await.unwrap()
    }

    #[tokio::test]
    async fn packed_pages_are_unpacked_and_packed_again() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(b"<a href=\"/x\">").unwrap();
        let page = packed.finish().unwrap();
        let headers = [("content-type", "text/html; charset=utf-8"), ("content-encoding", "gzip")];
        let response = relinked(&headers, page).await;
        let length = response.headers()[CONTENT_LENGTH].to_str().unwrap().to_owned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(length, body.len().to_string());
        assert_eq!(unpacked(GzDecoder::new(&body[..])).unwrap(), b"<a href=\"/p/x\">");
    }

    #[tokio::test]
    async fn what_is_no_page_and_what_is_too_long_is_left_alone() {
        for kind in ["text/plain", "application/json"] {
            let response = relinked(&[("content-type", kind)], "<a href=\"/x\">").await;
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, &b"<a href=\"/x\">"[..]);
        }
        let mut long = b"<a href=\"/x\">".to_vec();
        long.resize(LONGEST_PAGE_BYTES + 1, b' ');
        let response = relinked(&[("content-type", "text/html")], long.clone()).await;
        assert!(response.into_body().collect().await.unwrap().to_bytes() == long);
    }

    #[tokio::test]
    async fn redirects_lead_through_the_proxy() {
        let response = relinked(&[("location", "http://b:1/login?a=b")], Body::empty()).await;
        assert_eq!(response.headers()[LOCATION], "/p/login?a=b");
        let response = relinked(&[("location", "http://elsewhere/login")], Body::empty()).await;
        assert_eq!(response.headers()[LOCATION], "http://elsewhere/login");
    }
}
