//! Prints what the server answers at a path of discovery or OpenAPI: `document <path> [<accept>]`. For comparing with
//! other servers' documents.

use coracle_api::catalogue::catalogue;
use coracle_apiserver::discovery::{self, ServedApis};
use coracle_apiserver::openapi;
use std::io::Write;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: document <path> [<accept>]")?;
    let accept = args.next().unwrap_or_else(|| "application/json".to_owned());
    let offer = Arc::new(openapi::Documents::new(ServedApis::built_in(catalogue()), Arc::default()));
    let document = match discovery::respond(&path, &accept, "192.0.2.1:6443", &offer) {
        Some(document) => document,
        None => openapi::find(&path, &accept, &offer)
            .ok_or("nothing is served there")?
            .map_err(|error| error.message)?
            .make()
            .whole(),
    };
    std::io::stdout().write_all(&document.body)?;
    Ok(())
}
