//! One metric of an autoscaler: what it shows, and how many replicas it asks for.

use super::metrics::Metrics;
use super::replicas::{Aim, Crowd, NO_PODS, Proposal, Tolerance, ceiling, ratio};
use crate::common::{message_of, pods};
use crate::discovery::{Known, Served};
use coracle_api::Quantity;
use coracle_api::pod::{self, Counted, has_pod_level_requests, restarts_as_sidecar};
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricStatus, MetricSpec, MetricStatus, MetricTarget,
    MetricValueStatus, ObjectMetricSource, ObjectMetricStatus, PodsMetricStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

/// What a metric asks for.
pub struct Opinion {
    pub replicas: i32,
    /// For messages: `cpu resource utilization (percentage of request)`.
    pub name: String,
    pub status: MetricStatus,
}

/// What stood in the way.
#[derive(Debug)]
pub struct Trouble {
    /// Of the event and the condition.
    pub reason: &'static str,
    pub why: String,
    /// The same with the metric that it is about: what the event FailedComputeMetricsReplicas says.
    pub of_metric: Option<String>,
}

impl Trouble {
    pub fn new(reason: &'static str, why: impl Into<String>) -> Self {
        Self { reason, why: why.into(), of_metric: None }
    }

    /// The trouble of one metric.
    fn with(reason: &'static str, metric: String) -> impl FnOnce(String) -> Self {
        move |why| Self { reason, of_metric: Some(format!("{metric}: {why}")), why }
    }

    pub fn of(&self) -> &str {
        self.of_metric.as_deref().unwrap_or(&self.why)
    }

    /// The first of `unknown` metrics, of `all`, that cannot be had.
    pub fn of_some(self, unknown: usize, all: usize) -> Self {
        let first = self.of();
        let of = format!("invalid metrics ({unknown} invalid out of {all}), first error is: {first}");
        Self { of_metric: Some(of), ..self }
    }

    /// The message of the condition ScalingActive.
    pub fn condition(&self) -> String {
        match self.reason {
            "AmbiguousSelector" | "InvalidSelector" => self.why.clone(),
            _ => format!("the HPA was unable to compute the replica count: {}", self.why),
        }
    }
}

pub struct Judge<'a> {
    pub metrics: Metrics<'a>,
    pub known: &'a Known,
    pub pods: &'a [std::sync::Arc<Pod>],
    /// Replicas that are declared, and that there are.
    pub current: i32,
    pub running: i32,
    pub tolerance: Tolerance,
    pub now: jiff::Timestamp,
}

fn amount(milli: i64) -> Amount {
    Amount(Quantity::from_milli(milli).to_string())
}

fn milli(amount: Option<&Amount>) -> Option<i64> {
    amount?.0.parse::<Quantity>().ok().map(Quantity::milli)
}

fn value_status(proposal: &Proposal) -> MetricValueStatus {
    MetricValueStatus {
        average_utilization: proposal.utilization.and_then(|u| i32::try_from(u).ok()),
        average_value: Some(amount(proposal.average)),
        value: None,
    }
}

/// What a pod requests, or one of its containers, in thousandths. What the pod declares for itself goes before the sum
/// over its containers, each of which must request something otherwise.
fn request(pod: &Pod, resource: &str, container: Option<&str>) -> Result<i64, String> {
    let spec = pod.spec.as_ref();
    let own = spec.map(|s| s.containers.as_slice()).unwrap_or_default();
    let init = spec.and_then(|s| s.init_containers.as_deref()).unwrap_or_default();
    let sidecars = init.iter().filter(|c| restarts_as_sidecar(c.restart_policy.as_deref()));
    let of = |c: &Container| milli(c.resources.as_ref()?.requests.as_ref()?.get(resource));
    let mut lasting = own.iter().chain(sidecars);
    if let Some(name) = container {
        let found = lasting.find(|c| c.name == name);
        let found = found.ok_or_else(|| format!("container {name} not found in Pod {}", pod.name_any()))?;
        return of(found).ok_or_else(|| missing(pod, resource, found));
    }
    if !has_pod_level_requests(pod) {
        return lasting.map(|c| of(c).ok_or_else(|| missing(pod, resource, c))).sum();
    }
    // As it is declared, init containers at their peak: a resize under way does not count.
    let declared = pod::requests(pod, Counted::default());
    let total = declared.get(resource).map(Quantity::milli);
    let total =
        total.ok_or_else(|| format!("missing pod-level request for {resource} in Pod {}", pod.name_any()))?;
    let overhead = spec.and_then(|s| milli(s.overhead.as_ref()?.get(resource)));
    Ok(total.saturating_add(overhead.unwrap_or(0)))
}

fn missing(pod: &Pod, resource: &str, container: &Container) -> String {
    format!("missing request for {resource} in container {} of Pod {}", container.name, pod.name_any())
}

/// A selector as Go prints it, which is how events name it.
fn as_go(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels: String =
        selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},")).collect();
    let requirements = selector.match_expressions.iter().flatten().map(|r| {
        let values = r.values.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ");
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", r.key, r.operator)
    });
    let requirements: String = requirements.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{requirements}}},}}"
    )
}

impl Judge<'_> {
    fn crowd(&self, is_cpu: bool) -> Crowd<'_> {
        Crowd { current: self.current, pods: self.pods, is_cpu, tolerance: self.tolerance, now: self.now }
    }

    pub async fn opinion(&self, spec: &MetricSpec) -> Result<Opinion, Trouble> {
        let resource = spec.resource.as_ref().map(|source| source.name.as_str()).unwrap_or_default();
        let inner = spec.container_resource.as_ref().map(|s| s.container.as_str()).unwrap_or_default();
        let external = spec.external.as_ref().map(|source| source.metric.name.as_str()).unwrap_or_default();
        let (reason, of) = match spec.type_.as_str() {
            "Resource" => {
                ("FailedGetResourceMetric", format!("failed to get {resource} resource metric value"))
            }
            "ContainerResource" => {
                ("FailedGetContainerResourceMetric", format!("failed to get {inner} container metric value"))
            }
            "Pods" => ("FailedGetPodsMetric", "failed to get pods metric value".to_owned()),
            "Object" => ("FailedGetObjectMetric", "failed to get object metric value".to_owned()),
            "External" => {
                ("FailedGetExternalMetric", format!("failed to get {external} external metric value"))
            }
            other => {
                let why = format!("unknown metric source type {other:?}");
                return Err(Trouble::new("InvalidMetricSourceType", why));
            }
        };
        let asked = match spec.type_.as_str() {
            "Resource" | "ContainerResource" => self.resource(spec).await,
            "Pods" => self.of_pods(spec).await,
            "Object" => self.of_object(spec).await,
            _ => self.external(spec).await,
        };
        asked.map_err(Trouble::with(reason, of))
    }

    async fn resource(&self, spec: &MetricSpec) -> Result<Opinion, String> {
        let (name, container, target) = match (&spec.resource, &spec.container_resource) {
            (Some(source), _) => (&source.name, None, &source.target),
            (_, Some(source)) => (&source.name, Some(source.container.as_str()), &source.target),
            _ => return Err("the metric has no source".to_owned()),
        };
        let aim = match (milli(target.average_value.as_ref()), target.average_utilization) {
            (Some(average), _) => Aim::Average(average),
            (None, Some(percent)) => Aim::Utilization(i64::from(percent)),
            (None, None) => return Err("invalid resource metric source: neither an average utilization nor an average value (for pods) was set".to_owned()),
        };
        let samples = self.metrics.resource(name, container).await;
        let (measure, what) = match (aim, container) {
            (Aim::Average(_), _) => ("usage", format!("{name} resource")),
            (_, None) => ("utilization", format!("{name} resource utilization (percentage of request)")),
            (_, Some(_)) => {
                ("utilization", format!("{name} container resource utilization (percentage of request)"))
            }
        };
        let failed = |why: String| format!("failed to get {name} {measure}: {why}");
        let samples =
            samples.map_err(|why| failed(format!("unable to get metrics for resource {name}: {why}")))?;
        let proposal = self.crowd(name == "cpu").replicas(samples, aim, |pod| request(pod, name, container));
        let proposal = proposal.map_err(failed)?;
        let current = value_status(&proposal);
        let mut status = MetricStatus { type_: spec.type_.clone(), ..MetricStatus::default() };
        match container {
            None => status.resource = Some(ResourceMetricStatus { name: name.clone(), current }),
            Some(container) => {
                let container = container.to_owned();
                status.container_resource =
                    Some(ContainerResourceMetricStatus { name: name.clone(), container, current });
            }
        }
        Ok(Opinion { replicas: proposal.replicas, name: what, status })
    }

    async fn of_pods(&self, spec: &MetricSpec) -> Result<Opinion, String> {
        let source = spec.pods.as_ref().ok_or("the metric has no source")?;
        let aim = milli(source.target.average_value.as_ref()).ok_or("the metric has no averageValue")?;
        let samples = self.metrics.pods(&source.metric).await;
        let samples = samples.map_err(|why| format!("unable to get metric {}: {why}", source.metric.name))?;
        let proposal = self.crowd(false).replicas(samples, Aim::Average(aim), |_| Ok(0))?;
        let status = PodsMetricStatus { metric: source.metric.clone(), current: value_status(&proposal) };
        Ok(Opinion {
            replicas: proposal.replicas,
            name: format!("pods metric {}", source.metric.name),
            status: MetricStatus { type_: spec.type_.clone(), pods: Some(status), ..MetricStatus::default() },
        })
    }

    async fn of_object(&self, spec: &MetricSpec) -> Result<Opinion, String> {
        let source = spec.object.as_ref().ok_or("the metric has no source")?;
        let value = self.object_value(source).await;
        let value = value.map_err(|why| {
            let (object, namespace) = (&source.described_object, self.metrics.namespace);
            let (metric, kind, name) = (&source.metric.name, &object.kind, &object.name);
            format!("unable to get metric {metric}: {kind} on {namespace} {name}/{why}")
        })?;
        let (replicas, current) = self.of_value(value, &source.target)?;
        let status = ObjectMetricStatus {
            metric: source.metric.clone(),
            described_object: source.described_object.clone(),
            current,
        };
        Ok(Opinion {
            replicas,
            name: format!("{} metric {}", source.described_object.kind, source.metric.name),
            status: MetricStatus {
                type_: spec.type_.clone(),
                object: Some(status),
                ..MetricStatus::default()
            },
        })
    }

    async fn object_value(&self, source: &ObjectMetricSource) -> Result<i64, String> {
        let object = &source.described_object;
        let group = object.api_version.as_deref().and_then(|v| v.split_once('/')).map_or("", |(g, _)| g);
        let is_it = |s: &Served| s.resource.group == group && s.resource.kind == object.kind;
        let found = self.known.find(is_it).await.map_err(|error| message_of(&error))?;
        let plural = &found.ok_or_else(|| format!("no matches for kind {:?}", object.kind))?.resource.plural;
        let plural = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
        self.metrics.object(&plural, object, &source.metric).await
    }

    async fn external(&self, spec: &MetricSpec) -> Result<Opinion, String> {
        let source = spec.external.as_ref().ok_or("the metric has no source")?;
        let value = self.metrics.external(&source.metric).await;
        let value = value.map_err(|why| {
            let selector = as_go(source.metric.selector.as_ref());
            let (namespace, name) = (self.metrics.namespace, &source.metric.name);
            format!("unable to get external metric {namespace}/{name}/{selector}: {why}")
        })?;
        let (replicas, current) = self.of_value(value, &source.target)?;
        let status = ExternalMetricStatus { metric: source.metric.clone(), current };
        Ok(Opinion {
            replicas,
            name: format!(
                "external metric {}({})",
                source.metric.name,
                as_go(source.metric.selector.as_ref())
            ),
            status: MetricStatus {
                type_: spec.type_.clone(),
                external: Some(status),
                ..MetricStatus::default()
            },
        })
    }

    /// For one value that stands for the whole target, or is shared by its pods.
    fn of_value(&self, value: i64, target: &MetricTarget) -> Result<(i32, MetricValueStatus), String> {
        if let Some(aim) = milli(target.average_value.as_ref()) {
            let share = ratio(value, aim);
            let running = self.running.max(1);
            // Nothing runs that could be right.
            let stay = self.running > 0 && self.tolerance.holds(share / f64::from(running));
            let each = i64::from(running);
            let average = value.div_euclid(each) + i64::from(value.rem_euclid(each) > 0);
            let current =
                MetricValueStatus { average_value: Some(amount(average)), ..MetricValueStatus::default() };
            return Ok((if stay { self.running } else { ceiling(share) }, current));
        }
        let aim = milli(target.value.as_ref()).ok_or("the metric has neither value nor averageValue")?;
        let times = ratio(value, aim);
        let replicas = match self.current {
            // Nothing runs that could be counted.
            0 => ceiling(times),
            current if self.tolerance.holds(times) => current,
            _ if self.pods.is_empty() => return Err(format!("unable to calculate ready pods: {NO_PODS}")),
            _ => {
                let ready =
                    self.pods.iter().filter(|pod| pods::phase(pod) == "Running" && pods::is_ready(pod));
                ceiling(times * f64::from(i32::try_from(ready.count()).unwrap_or(i32::MAX)))
            }
        };
        let current = MetricValueStatus { value: Some(amount(value)), ..MetricValueStatus::default() };
        Ok((replicas, current))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn client() -> kube::Client {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        kube::Client::try_from(config).unwrap()
    }

    /// Replicas that one value asks for, and the value as the status shows it. Two of three pods are ready.
    async fn ask(current: i32, running: i32, value: i64, target: Value) -> Result<(i32, String), String> {
        let client = client();
        let pod = |phase: &str, ready: &str| -> Arc<Pod> {
            let conditions = json!([{ "type": "Ready", "status": ready }]);
            Arc::new(
                serde_json::from_value(json!({ "status": { "phase": phase, "conditions": conditions } }))
                    .unwrap(),
            )
        };
        let mut pods = vec![pod("Running", "True"), pod("Running", "True"), pod("Pending", "False")];
        pods.truncate(usize::try_from(running).unwrap());
        let judge = Judge {
            metrics: Metrics { client: &client, namespace: "x", selector: "a=b" },
            known: &Known::new(client.clone()),
            pods: &pods,
            current,
            running,
            tolerance: Tolerance { up: 0.1, down: 0.1 },
            now: jiff::Timestamp::UNIX_EPOCH,
        };
        let (replicas, status) = judge.of_value(value, &serde_json::from_value(target).unwrap())?;
        Ok((replicas, status.average_value.or(status.value).unwrap().0))
    }

    #[tokio::test]
    async fn one_value_for_all() {
        let whole = || json!({ "type": "Value", "value": "10" });
        let shared = || json!({ "type": "AverageValue", "averageValue": "10" });
        let done = |replicas, shown: &str| Ok((replicas, shown.to_owned()));
        assert_eq!(ask(3, 3, 20_000, whole()).await, done(4, "20"), "twice as many as are ready");
        assert_eq!(ask(3, 3, 10_500, whole()).await, done(3, "10500m"), "near enough");
        assert_eq!(ask(0, 0, 25_000, whole()).await, done(3, "25"), "from nothing");
        assert!(ask(3, 0, 20_000, whole()).await.unwrap_err().contains("no pods returned by selector"));
        assert_eq!(ask(3, 3, 50_000, shared()).await, done(5, "16667m"), "rounded up");
        assert_eq!(ask(2, 3, 31_000, shared()).await, done(3, "10334m"), "by those that run");
        assert_eq!(ask(1, 0, 10_000, shared()).await, done(1, "10"), "from nothing");
    }

    #[test]
    fn requests_of_pods_and_containers() {
        let container =
            |name: &str, cpu: Value| json!({ "name": name, "resources": { "requests": { "cpu": cpu } } });
        let sidecar =
            json!({ "name": "s", "restartPolicy": "Always", "resources": { "requests": { "cpu": "50m" } } });
        let of = |spec: Value, container: Option<&str>| {
            let pod = serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec })).unwrap();
            request(&pod, "cpu", container)
        };
        let both = json!([container("a", json!("100m")), container("b", json!("50m"))]);
        assert_eq!(of(json!({ "containers": both }), None), Ok(150));
        let whole = json!({ "containers": both, "resources": { "requests": { "cpu": "800m" } } });
        assert_eq!((of(whole.clone(), None), of(whole, Some("a"))), (Ok(800), Ok(100)));
        let one = json!([{ "name": "a" }, container("b", json!("50m"))]);
        let why = "missing request for cpu in container a of Pod p".to_owned();
        assert_eq!(of(json!({ "containers": one }), None), Err(why));
        let memory = json!({ "containers": one, "resources": { "requests": { "memory": "1Gi" } }, "overhead": { "cpu": "10m" } });
        assert_eq!(of(memory.clone(), None), Ok(60));
        let mut peak = memory;
        peak["initContainers"] = json!([container("i", json!("300m"))]);
        assert_eq!(of(peak, None), Ok(310), "an init container that needs more than the others together");
        let none =
            json!({ "containers": [{ "name": "a" }], "resources": { "requests": { "memory": "1Gi" } } });
        assert_eq!(of(none, None), Err("missing pod-level request for cpu in Pod p".to_owned()));
        let init = json!([container("i", json!("20m")), sidecar]);
        assert_eq!(
            of(json!({ "containers": [container("a", json!("100m"))], "initContainers": init }), None),
            Ok(150)
        );
        let why = "container x not found in Pod p".to_owned();
        assert_eq!(of(json!({ "containers": both }), Some("x")), Err(why));
    }

    #[test]
    fn what_is_said_of_metrics_that_cannot_be_had() {
        let trouble = Trouble::with("FailedGetResourceMetric", "failed to get cpu".into())("why".into());
        assert_eq!(trouble.condition(), "the HPA was unable to compute the replica count: why");
        let some = trouble.of_some(1, 2);
        assert_eq!(some.of(), "invalid metrics (1 invalid out of 2), first error is: failed to get cpu: why");
        assert_eq!(Trouble::new("InvalidSelector", "none").condition(), "none");
    }
}
