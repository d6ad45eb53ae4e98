//! The real binary, driven by clients from elsewhere: kubectl in two versions, helm, the Python and JavaScript
//! clients, kube-rs. `scripts/prepare` fetches them.

mod election;
mod helm;
mod kube_rs;
mod kubectl;
mod manifests;
mod scripts;
mod ui;
