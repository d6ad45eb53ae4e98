//! Subresources of pods that change the pod: binding and eviction.

use super::metadata::{is_deleting, of, text, time_text};
use super::update::{Part, RETRIES};
use super::{DeleteOptions, Deleted, Scope, WriteOptions};
use super::{Operation, RequestOptions};
use coracle_api::condition::set_condition_of;
use coracle_api::meta::{self, validate_annotations, validate_labels};
use coracle_api::pod::is_terminal_phase;
use coracle_api::{ApiError, FieldError, LabelSelector, Object};
use serde_json::{Value, json};
use std::sync::Arc;

impl Scope<'_> {
    /// Assigns the pod to a node; `binding` names it.
    pub async fn bind(&self, binding: &Object, options: &WriteOptions) -> Result<Value, ApiError> {
        let target = &binding["target"];
        let (kind, node) = (target["kind"].as_str().unwrap_or(""), target["name"].as_str().unwrap_or(""));
        let mut errors = Vec::new();
        if !matches!(kind, "" | "Node") {
            errors.push(FieldError::not_supported("target.kind", &kind.into(), &["Node", "<empty>"]));
        }
        if node.is_empty() {
            errors.push(FieldError::required("target.name", ""));
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid("", "Binding", self.name, &errors));
        }
        let binding = &self.admit(binding, options).await?;
        self.assign(binding, node, options.dry_run).await?;
        Ok(json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 }))
    }

    /// Writes the decision and nothing else, past the rules for updates, as upstream does: the pod is valid but for
    /// metadata that the binding adds, who owns its fields owns them still, and admission has seen the binding.
    async fn assign(&self, binding: &Object, node: &str, dry_run: bool) -> Result<(), ApiError> {
        for attempt in 0..RETRIES {
            let fresh = attempt > 0;
            let Some(cached) = self.current(self.name, fresh).await? else {
                if fresh {
                    return Err(self.not_found(self.name));
                }
                continue;
            };
            let assigned = self.assigned(cached.decode(), binding, node)?;
            if self.put(self.name, assigned, Some((&cached, None)), dry_run).await?.is_ok() {
                return Ok(());
            }
        }
        Err(self.modified(self.name))
    }

    /// What admission makes of a body that is not kept itself: a Binding, an Eviction.
    async fn admit(&self, body: &Object, options: &WriteOptions) -> Result<Object, ApiError> {
        let named = text(body, "name");
        if !named.is_empty() && named != self.name {
            return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
        }
        let mut body = body.clone();
        of(&mut body).insert("name".into(), self.name.into());
        of(&mut body).insert("namespace".into(), self.namespace.into());
        self.mutate(Operation::Create, &mut body, None, options).await?;
        self.get()?;
        self.validate_admission(Operation::Create, Some(&body), None, RequestOptions::Write(options)).await?;
        Ok(body)
    }

    fn assigned(&self, pod: Arc<Object>, binding: &Object, node: &str) -> Result<Object, ApiError> {
        let refuse = |why: String| Err(ApiError::conflict("", "pods/binding", self.name, &why));
        let (wanted, uid) = (text(binding, "uid"), text(&pod, "uid"));
        if !wanted.is_empty() && wanted != uid {
            let why =
                format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}");
            return refuse(why);
        }
        let (wanted, version) = (text(binding, "resourceVersion"), text(&pod, "resourceVersion"));
        if !wanted.is_empty() && wanted != version {
            return refuse(format!(
                "Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion in object meta: {version}"
            ));
        }
        if is_deleting(&pod) {
            return refuse(format!("pod {} is being deleted, cannot be assigned to a host", self.name));
        }
        if let Some(taken) = pod["spec"]["nodeName"].as_str().filter(|n| !n.is_empty()) {
            return refuse(format!("pod {} is already assigned to node \"{taken}\"", self.name));
        }
        if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
            return refuse(format!("pod {} has non-empty .spec.schedulingGates", self.name));
        }
        // Mostly nobody else holds it.
        let mut pod = Arc::unwrap_or_clone(pod);
        pod["spec"]["nodeName"] = node.into();
        // The nomination has come true, or another node was found.
        if let Some(status) = pod["status"].as_object_mut() {
            status.remove("nominatedNodeName");
        }
        self.label(&mut pod, binding)?;
        set_condition_of(
            &mut pod,
            json!({ "type": "PodScheduled", "status": "True", "lastProbeTime": null,
                "lastTransitionTime": time_text(self.now) }),
        );
        self.settle(&mut pod);
        Ok(pod)
    }

    /// Gives the pod the annotations and labels of its binding.
    fn label(&self, pod: &mut Object, binding: &Object) -> Result<(), ApiError> {
        let fields = ["annotations", "labels"].map(|field| (field, binding["metadata"][field].as_object()));
        let added: Vec<_> = fields.into_iter().filter_map(|(field, map)| Some((field, map?))).collect();
        if added.iter().all(|(_, map)| map.is_empty()) {
            return Ok(());
        }
        for (field, added) in added {
            let map = of(pod).entry(field).or_insert_with(|| json!({}));
            added.iter().for_each(|(key, value)| map[key.as_str()] = value.clone());
        }
        let mut errors = Vec::new();
        validate_labels(meta::labels(pod), "metadata.labels", &mut errors);
        validate_annotations(meta::annotations(pod), "metadata.annotations", &mut errors);
        if errors.is_empty() { Ok(()) } else { Err(self.invalid(&errors)) }
    }

    /// Deletes the pod if the disruption budgets that cover it allow it.
    pub async fn evict(&self, eviction: &Object, options: &WriteOptions) -> Result<Deleted, ApiError> {
        let mut delete = match &eviction["deleteOptions"] {
            Value::Null => DeleteOptions::default(),
            body => super::Query::new(None).delete_options(Some(body))?,
        };
        delete.dry_run |= options.dry_run;
        let named = text(eviction, "name");
        if named != self.name {
            return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
        }
        let pod = self.get()?.decode();
        self.admit(eviction, options).await?;
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        if !(is_terminal_phase(phase) || phase == "Pending" || is_deleting(&pod)) {
            self.charge_budget(&pod, delete.dry_run).await?;
        }
        self.mark_disrupted(delete.dry_run).await?;
        self.delete(&delete).await
    }

    /// Says in the pod's conditions why it goes, for those who hold it by a finalizer.
    async fn mark_disrupted(&self, dry_run: bool) -> Result<(), ApiError> {
        let mark = |current: Option<&Object>| {
            let mut pod = current.cloned().ok_or_else(|| self.not_found(self.name))?;
            let condition = json!({ "type": "DisruptionTarget", "status": "True",
                "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
                "lastProbeTime": null, "lastTransitionTime": time_text(self.now) });
            set_condition_of(&mut pod, condition);
            of(&mut pod).insert("resourceVersion".into(), "".into());
            Ok(pod)
        };
        let dry = WriteOptions { dry_run, ..WriteOptions::default() };
        self.update(Part::Internal, &dry, mark).await.map(drop)
    }

    async fn charge_budget(&self, pod: &Object, dry_run: bool) -> Result<(), ApiError> {
        let budgets = self.budgets_of(pod);
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [one] => one,
            _ => {
                return Err(ApiError::new(
                    500,
                    "",
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let Some(resource) = coracle_api::catalogue::by_plural("policy", "v1", "poddisruptionbudgets") else {
            return Ok(());
        };
        let scope = Scope {
            registry: self.registry,
            resource,
            strategy: coracle_strategy::for_resource("policy", "poddisruptionbudgets").into(),
            namespace: self.namespace,
            name: budget,
            subresource: "status",
            user: self.user,
            now: self.now,
            warnings: parking_lot::Mutex::default(),
        };
        let charge = |current: Option<&Object>| {
            let mut budget = current.cloned().ok_or_else(|| scope.not_found(scope.name))?;
            // Bound to no version: whoever else writes the budget meanwhile, this is tried again.
            of(&mut budget).remove("resourceVersion");
            if spares(&budget, pod) {
                return Ok(budget);
            }
            charged(budget, self.name, &time_text(self.now))
        };
        let options = WriteOptions { dry_run, ..WriteOptions::default() };
        scope.update(Part::Internal, &options, charge).await.map(|_| ())
    }

    /// Names of the budgets whose selector matches the pod.
    fn budgets_of(&self, pod: &Object) -> Vec<String> {
        use coracle_requests::ObjectReader;
        let budgets = self.registry.cache.list("poddisruptionbudgets.policy", self.namespace);
        let covers = |budget: &Object| {
            LabelSelector::from_object(&budget["spec"]["selector"]).is_ok_and(|s| s.matches_object(pod))
        };
        budgets.iter().filter(|b| covers(b)).map(|b| text(b, "name").to_owned()).collect()
    }
}

/// Pods that the kubelet has not confirmed gone, at most; upstream's number.
const MAX_DISRUPTED_PODS: usize = 2000;

/// Whether the pod may go without being counted: one that is not ready does not make the rest fewer
/// (`unhealthyPodEvictionPolicy`, KEP-3017).
fn spares(budget: &Object, pod: &Object) -> bool {
    let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True") {
        return false;
    }
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    match budget["spec"]["unhealthyPodEvictionPolicy"].as_str() {
        Some("AlwaysAllow") => true,
        _ => number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0,
    }
}

/// The budget with one disruption used up, or 429.
fn charged(budget: Object, pod: &str, now: &str) -> Result<Object, ApiError> {
    let mut budget = budget;
    let name = text(&budget, "name").to_owned();
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let generation = budget["metadata"]["generation"].as_i64().unwrap_or(0);
    if number("observedGeneration") < generation {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return refuse(&why, SOON);
    }
    let allowed = number("disruptionsAllowed");
    let forbid = |why: &str| Err(ApiError::forbidden("policy", "poddisruptionbudgets", &name, why));
    if allowed < 0 {
        return forbid("pdb disruptions allowed is negative");
    }
    let disrupted = budget["status"]["disruptedPods"].as_object().map_or(0, serde_json::Map::len);
    if disrupted > MAX_DISRUPTED_PODS {
        return forbid("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed == 0 {
        let conditions = budget["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let failed =
            conditions.iter().find(|c| c["type"] == "DisruptionAllowed" && c["reason"] == "SyncFailed");
        let why = match failed {
            Some(condition) => format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
                condition["message"].as_str().unwrap_or_default()
            ),
            None => format!(
                "The disruption budget {name} needs {} healthy pods and has {} currently",
                number("desiredHealthy"),
                number("currentHealthy")
            ),
        };
        return refuse(&why, NOBODY_KNOWS);
    }
    budget["status"]["disruptionsAllowed"] = (allowed - 1).into();
    budget["status"]["disruptedPods"][pod] = now.into();
    if allowed == 1 {
        let condition = json!({ "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods",
            "message": "", "observedGeneration": generation, "lastTransitionTime": now });
        set_condition_of(&mut budget, condition);
    }
    Ok(budget)
}

/// Seconds until a budget has been counted anew, to upstream's mind.
const SOON: u32 = 10;
/// A budget that is spent comes back when its pods do. Clients that were told a time would wait for it by themselves,
/// and `kubectl drain --timeout` never end.
const NOBODY_KNOWS: u32 = 0;

fn refuse(message: &str, retry_after_seconds: u32) -> Result<Object, ApiError> {
    let why = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut error = ApiError::too_many_requests(why, retry_after_seconds);
    if retry_after_seconds == 0 {
        (error.details, error.retry_after) = (json!({}), None);
    }
    error.details["causes"] = json!([{ "reason": "DisruptionBudget", "message": message }]);
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_run_out() {
        let budget = json!({"metadata": {"name": "b", "generation": 1},
            "status": {"observedGeneration": 1, "disruptionsAllowed": 1}});
        let once = charged(budget, "p", "2026-01-01T00:00:00Z").unwrap();
        assert_eq!(once["status"]["disruptionsAllowed"], 0);
        assert_eq!(once["status"]["disruptedPods"]["p"], "2026-01-01T00:00:00Z");
        assert_eq!(once["status"]["conditions"][0]["reason"], "InsufficientPods");
        let error = charged(once, "q", "").unwrap_err();
        assert_eq!((error.code, error.retry_after), (429, None));
        let cause = &error.details["causes"][0];
        assert_eq!(cause["message"], "The disruption budget b needs 0 healthy pods and has 0 currently");
    }

    #[test]
    fn unready_pods_go_where_the_budget_says_so() {
        let budget = |policy: &str, healthy: i64| {
            json!({ "spec": { "unhealthyPodEvictionPolicy": policy },
                "status": { "currentHealthy": healthy, "desiredHealthy": 2 } })
        };
        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        assert!(spares(&budget("AlwaysAllow", 0), &json!({})));
        assert!(!spares(&budget("AlwaysAllow", 0), &ready));
        assert!(!spares(&budget("IfHealthyBudget", 1), &json!({})));
        assert!(spares(&budget("IfHealthyBudget", 2), &json!({})));
    }
}
