//! What every component needs to be a client of the API: transports, shared informers, work queues, the controller
//! loop, leader election and the event recorder.

pub mod clock;
pub mod context;
pub mod controller;
mod correlate;
pub mod document;
pub mod events;
pub mod fold;
mod held;
pub mod informer;
pub mod leader;
pub mod metrics;
pub mod pace;
pub mod placement;
pub mod queue;
pub mod reflector;
mod slim;
pub mod store;
pub mod transport;
mod untold;
pub mod write;

pub use context::Context;
pub use controller::{Controller, Next, ReconcileError, Reconciler};
pub use events::{Recorder, Storm};
pub use informer::{Delta, Informer, Informers, ObjectKey};
pub use queue::WorkQueue;
pub use reflector::{Change, Reflector, Selection};
pub use store::Store;
