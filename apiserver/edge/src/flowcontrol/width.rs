//! How many seats a request takes.

use coracle_requests::RequestInfo;

/// Objects that one seat of a list stands for, as upstream.
const OBJECTS_PER_SEAT: usize = 100;
/// Widest request, as upstream.
const MOST_SEATS: u32 = 10;

/// `count` tells how many objects of the request's resource there are; `most` is the widest request of its level.
///
/// Lists, and watches that ask for the initial state, are as wide as the collection is long: all of it is looked at.
/// Writes take one seat: watchers are told of them by the watch cache, whose work upstream's longer seats stand for, at
/// a few microseconds each and beside the request.
pub fn seats(info: &RequestInfo, most: impl FnOnce() -> u32, count: impl FnOnce() -> usize) -> u32 {
    if !info.is_resource || !info.name.is_empty() {
        return 1;
    }
    let reads_all = match info.verb {
        "list" => true,
        "watch" => info.query.flag("sendInitialEvents").unwrap_or(false),
        _ => false,
    };
    if !reads_all {
        return 1;
    }
    let wanted = u32::try_from(count().div_ceil(OBJECTS_PER_SEAT)).unwrap_or(MOST_SEATS);
    wanted.clamp(1, most().clamp(1, MOST_SEATS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    #[test]
    fn lists_are_as_wide_as_they_are_long() {
        let seats = |uri: &str, count: usize| {
            let uri: http::Uri = uri.parse().unwrap();
            let info = RequestInfo::new(&Method::GET, &uri);
            seats(&info, || 8, || count)
        };
        assert_eq!(seats("/api/v1/pods", 0), 1);
        assert_eq!(seats("/api/v1/pods", 101), 2);
        assert_eq!(seats("/api/v1/pods", 50_000), 8);
        assert_eq!(seats("/api/v1/namespaces/n/pods/p", 50_000), 1);
        assert_eq!(seats("/api/v1/pods?fieldSelector=metadata.name%3Dp", 50_000), 1);
        assert_eq!(seats("/api/v1/pods?watch=1", 50_000), 1);
        assert_eq!(seats("/api/v1/pods?watch=1&sendInitialEvents=true", 500), 5);
        assert_eq!(seats("/version", 500), 1);
    }
}
