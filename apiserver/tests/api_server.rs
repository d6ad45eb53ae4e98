//! The API server in memory, from the request to the answer.

#[cfg(test)]
#[path = "api_server/support.rs"]
mod support;

#[cfg(test)]
#[path = "api_server/access.rs"]
mod access;
#[cfg(test)]
#[path = "api_server/admission_configured.rs"]
mod admission_configured;
#[cfg(test)]
#[path = "api_server/aggregation.rs"]
mod aggregation;
#[cfg(test)]
#[path = "api_server/audit.rs"]
mod audit;
#[cfg(test)]
#[path = "api_server/authorization.rs"]
mod authorization;
#[cfg(test)]
#[path = "api_server/crd_conversion.rs"]
mod crd_conversion;
#[cfg(test)]
#[path = "api_server/crd_definitions.rs"]
mod crd_definitions;
#[cfg(test)]
#[path = "api_server/custom_basics.rs"]
mod custom_basics;
#[cfg(test)]
#[path = "api_server/custom_foreign.rs"]
mod custom_foreign;
#[cfg(test)]
#[path = "api_server/custom_parts.rs"]
mod custom_parts;
#[cfg(test)]
#[path = "api_server/custom_support.rs"]
mod custom_support;
#[cfg(test)]
#[path = "api_server/custom_validation.rs"]
mod custom_validation;
#[cfg(test)]
#[path = "api_server/custom_versions.rs"]
mod custom_versions;
#[cfg(test)]
#[path = "api_server/delete.rs"]
mod delete;
#[cfg(test)]
#[path = "api_server/deleted.rs"]
mod deleted;
#[cfg(test)]
#[path = "api_server/encryption.rs"]
mod encryption;
#[cfg(test)]
#[path = "api_server/errors.rs"]
mod errors;
#[cfg(test)]
#[path = "api_server/flow.rs"]
mod flow;
#[cfg(test)]
#[path = "api_server/formats.rs"]
mod formats;
#[cfg(test)]
#[path = "api_server/groups.rs"]
mod groups;
#[cfg(test)]
#[path = "api_server/list_semantics.rs"]
mod list_semantics;
#[cfg(test)]
#[path = "api_server/lists.rs"]
mod lists;
#[cfg(test)]
#[path = "api_server/matrix.rs"]
mod matrix;
#[cfg(test)]
#[path = "api_server/metrics_api.rs"]
mod metrics_api;
#[cfg(test)]
#[path = "api_server/mutated.rs"]
mod mutated;
#[cfg(test)]
#[path = "api_server/observe.rs"]
mod observe;
#[cfg(test)]
#[path = "api_server/ownership.rs"]
mod ownership;
#[cfg(test)]
#[path = "api_server/patches.rs"]
mod patches;
#[cfg(test)]
#[path = "api_server/policies.rs"]
mod policies;
#[cfg(test)]
#[path = "api_server/policies_custom.rs"]
mod policies_custom;
#[cfg(test)]
#[path = "api_server/policies_mutating.rs"]
mod policies_mutating;
#[cfg(test)]
#[path = "api_server/policies_reach.rs"]
mod policies_reach;
#[cfg(test)]
#[path = "api_server/policies_validating.rs"]
mod policies_validating;
#[cfg(test)]
#[path = "api_server/protobuf.rs"]
mod protobuf;
#[cfg(test)]
#[path = "api_server/proxying.rs"]
mod proxying;
#[cfg(test)]
#[path = "api_server/reach.rs"]
mod reach;
#[cfg(test)]
#[path = "api_server/repeated.rs"]
mod repeated;
#[cfg(test)]
#[path = "api_server/selecting.rs"]
mod selecting;
#[cfg(test)]
#[path = "api_server/sockets.rs"]
mod sockets;
#[cfg(test)]
#[path = "api_server/statuses.rs"]
mod statuses;
#[cfg(test)]
#[path = "api_server/subresources.rs"]
mod subresources;
#[cfg(test)]
#[path = "api_server/toy.rs"]
mod toy;
#[cfg(test)]
#[path = "api_server/typed.rs"]
mod typed;
#[cfg(test)]
#[path = "api_server/validation.rs"]
mod validation;
#[cfg(test)]
#[path = "api_server/watch_semantics.rs"]
mod watch_semantics;
#[cfg(test)]
#[path = "api_server/watches.rs"]
mod watches;
#[cfg(test)]
#[path = "api_server/webhooks_custom.rs"]
mod webhooks_custom;
#[cfg(test)]
#[path = "api_server/webhooks_failures.rs"]
mod webhooks_failures;
#[cfg(test)]
#[path = "api_server/webhooks_mutating.rs"]
mod webhooks_mutating;
#[cfg(test)]
#[path = "api_server/webhooks_support.rs"]
mod webhooks_support;
#[cfg(test)]
#[path = "api_server/webhooks_validating.rs"]
mod webhooks_validating;
#[cfg(test)]
#[path = "api_server/witness.rs"]
mod witness;
#[cfg(test)]
#[path = "api_server/writes.rs"]
mod writes;
