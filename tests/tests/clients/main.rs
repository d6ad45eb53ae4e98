//! The real binary, driven by clients from elsewhere: kubectl in two versions, helm, the Python and JavaScript
//! clients, kube-rs. `scripts/prepare` fetches them.

mod kubectl;
