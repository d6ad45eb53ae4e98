//! Prints what the server answers at a path of discovery or OpenAPI: `document <path> [<accept>]`. For comparing with
//! other servers' documents.

use coracle_api::catalogue::catalogue;
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: document <path> [<accept>]")?;
    let accept = args.next().unwrap_or_else(|| "application/json".to_owned());
    let document = match coracle_apiserver::discovery::respond(&path, &accept, catalogue()) {
        Some(document) => document,
        None => coracle_apiserver::openapi::respond(&path, &accept, catalogue())
            .ok_or("nothing is served there")?
            .map_err(|error| error.message)?,
    };
    std::io::stdout().write_all(&document.body)?;
    Ok(())
}
