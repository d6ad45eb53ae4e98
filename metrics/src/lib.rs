//! Counters, gauges and histograms in Prometheus' text format: the one implementation of all components.
//!
//! Each [`Family`] is a metric with labels. A component that has many lists them with [`metric_families!`] and records in
//! its [`Metrics`]; whoever serves a page lends it a [`Text`] to write them on.

mod family;
mod part;
pub mod stability;
mod text;

pub use family::{Counter, Family, Gauge, Histogram, Metric};
pub use part::{Buckets, Description, Families, Kind, Metrics, exponential};
pub use text::{CONTENT_TYPE, Text};
