//! What the headers of a request say of who is asking, read once.
//!
//! A header that comes several times is read as upstream reads it: the first `Authorization`, `X-Remote-User` and
//! `X-Remote-Uid` count; of groups, extra values and WebSocket protocols all do. Whom to impersonate may be said once only.

use super::impersonation::{self, Wish};
use super::{AuthnError, bearer, front_proxy};
use coracle_api::{ApiError, UserInfo};
use http::HeaderMap;

/// See the module. Nothing in it is proven.
#[derive(Debug)]
pub struct Credentials {
    pub(super) bearer: Result<Option<String>, AuthnError>,
    /// Whom a proxy in front names; for connections of such a proxy alone.
    pub(super) proxied: Option<UserInfo>,
    /// Whom the request asks to be made as.
    pub(super) wish: Result<Option<Wish>, ApiError>,
}

impl Credentials {
    pub fn of(headers: &HeaderMap) -> Self {
        Self {
            bearer: bearer::token(headers),
            proxied: front_proxy::user(headers),
            wish: impersonation::wish(headers),
        }
    }

    /// Whether somebody has to be asked about impersonation, or told what is wrong with it.
    pub fn ask_to_impersonate(&self) -> bool {
        !matches!(self.wish, Ok(None))
    }
}

/// What was read, for tests.
#[cfg(any(test, feature = "testing"))]
impl Credentials {
    pub fn bearer(&self) -> Result<Option<&str>, &AuthnError> {
        self.bearer.as_ref().map(Option::as_deref)
    }

    pub fn proxied(&self) -> Option<&UserInfo> {
        self.proxied.as_ref()
    }

    pub fn wished_user(&self) -> Result<Option<&str>, &ApiError> {
        self.wish.as_ref().map(|wish| wish.as_ref().map(|wish| wish.user.as_str()))
    }
}
