//! What every component needs to be a client of the API: transports, shared informers, work queues, the controller
//! loop, leader election and the event recorder.

pub mod accounts;
pub mod beat;
pub mod clock;
mod condition_times;
pub mod context;
pub mod controller;
mod correlate;
pub mod document;
pub mod events;
pub mod fold;
mod followed_object;
pub mod informer;
pub mod leader;
mod live_configuration;
pub mod metrics;
mod object;
mod object_index;
mod object_store;
pub mod pace;
pub mod placement;
pub mod queue;
pub mod reflector;
pub mod store;
mod transform;
pub mod transport;
pub mod write;

pub use accounts::{ClientFor, Clients};
pub use context::Context;
pub use controller::{Action, Controller, ReconcileError, Reconciler};
pub use events::{EventAction, EventThrottle, Recorder};
pub use followed_object::FollowedObject;
pub use informer::{Delta, Informer, Informers, ObjectKey};
pub use live_configuration::{CONFIGURATION_NAMESPACE, Configured, LiveConfiguration};
pub use object::Kind;
pub use queue::WorkQueue;
pub use reflector::{Change, Reflector, Selection};
pub use store::Store;
