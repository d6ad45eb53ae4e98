//! What a request says, and the ports through which it is served: everything here is known before any component is, so
//! that strategies, authorizers, admission, the registry and the edge can be built without each other.

pub mod admission;
pub mod authorizer;
pub mod delete_options;
pub mod go;
pub mod options;
pub mod query;
mod reader;
pub mod request_info;
mod segments;
pub mod selectors;
mod store_error;
pub mod stream_options;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod value;

pub use delete_options::{DeleteOptions, Propagation};
pub use options::{ListOptions, SentOptions, WriteOptions};
pub use query::Query;
pub use reader::{CustomVersion, ObjectReader};
pub use request_info::RequestInfo;
pub use selectors::Selectors;
pub use store_error::{store_error, too_large_version};
