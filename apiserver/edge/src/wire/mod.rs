//! How a request is read and an answer is written, whatever they are about: headers, formats, shapes, errors.

pub mod gzip;
mod indent;
pub mod negotiation;
pub mod request_headers;
pub mod respond;
pub mod shape;
mod warnings;
mod yaml;

pub use negotiation::{Format, Shape, Wanted};
pub use request_headers::RequestHeaders;
pub use respond::{Content, Reply};
