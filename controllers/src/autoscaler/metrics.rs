//! What the metrics APIs say: metrics.k8s.io, and custom and external metrics where somebody serves them.

use super::replicas::{Sample, Samples};
use crate::common::message_of;
use coracle_api::Quantity;
use http::Request;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{CrossVersionObjectReference, MetricIdentifier};
use kube::core::Selector;
use serde_json::Value;

pub struct Metrics<'a> {
    pub client: &'a kube::Client,
    pub namespace: &'a str,
    /// Of the target's pods.
    pub selector: &'a str,
}

const CUSTOM: &str = "/apis/custom.metrics.k8s.io/v1beta2";
const EXTERNAL: &str = "/apis/external.metrics.k8s.io/v1beta1";

pub fn milli(value: &Value) -> Option<i64> {
    value.as_str()?.parse::<Quantity>().ok().map(Quantity::milli)
}

fn seconds(value: &Value) -> SignedDuration {
    let text = value.as_str().unwrap_or_default();
    text.parse().unwrap_or(SignedDuration::from_secs(60))
}

fn time(value: &Value) -> Timestamp {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(Timestamp::now)
}

fn escaped(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

impl Metrics<'_> {
    async fn get(&self, path: &str) -> Result<Vec<Value>, String> {
        let request = Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
        let list: Value = self.client.request(request).await.map_err(|error| message_of(&error))?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// The use of a resource by each pod, or by one of its containers.
    pub async fn resource(&self, name: &str, container: Option<&str>) -> Result<Samples, String> {
        let why = |error| format!("unable to fetch metrics from resource metrics API: {error}");
        let (namespace, selector) = (self.namespace, escaped(self.selector));
        let path =
            format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods?labelSelector={selector}");
        let mut samples = Samples::new();
        let items = self.get(&path).await.map_err(why)?;
        if items.is_empty() {
            return Err("no metrics returned from resource metrics API".to_owned());
        }
        for item in items {
            let containers = item["containers"].as_array().cloned().unwrap_or_default();
            let counted = containers.iter().filter(|c| container.is_none_or(|name| c["name"] == name));
            let amounts: Option<Vec<i64>> = counted.map(|c| milli(&c["usage"][name])).collect();
            let Some(amounts) = amounts.filter(|amounts| !amounts.is_empty()) else { continue };
            let sample = Sample {
                milli: amounts.iter().fold(0, |sum, amount| sum.saturating_add(*amount)),
                at: time(&item["timestamp"]),
                window: seconds(&item["window"]),
            };
            samples.insert(item["metadata"]["name"].as_str().unwrap_or_default().to_owned(), sample);
        }
        Ok(samples)
    }

    /// A custom metric of each pod.
    pub async fn pods(&self, metric: &MetricIdentifier) -> Result<Samples, String> {
        let why = |error| format!("unable to fetch metrics from custom metrics API: {error}");
        let path = format!(
            "{CUSTOM}/namespaces/{}/pods/*/{}?labelSelector={}{}",
            self.namespace,
            metric.name,
            escaped(self.selector),
            of_metric(metric, "&metricLabelSelector=")
        );
        let items = self.get(&path).await.map_err(why)?;
        let samples = items.iter().filter_map(|item| {
            let window = SignedDuration::from_secs(item["windowSeconds"].as_i64().unwrap_or(60));
            let sample = Sample { milli: milli(&item["value"])?, at: time(&item["timestamp"]), window };
            Some((item["describedObject"]["name"].as_str()?.to_owned(), sample))
        });
        let samples: Samples = samples.collect();
        if samples.is_empty() {
            Err("no metrics returned from custom metrics API".to_owned())
        } else {
            Ok(samples)
        }
    }

    /// A custom metric of one object; `plural` is `<plural>.<group>`, or the plural of a core kind.
    pub async fn object(
        &self,
        plural: &str,
        object: &CrossVersionObjectReference,
        metric: &MetricIdentifier,
    ) -> Result<i64, String> {
        let why = |error| format!("unable to fetch metrics from custom metrics API: {error}");
        let selector = of_metric(metric, "?metricLabelSelector=");
        let path = format!(
            "{CUSTOM}/namespaces/{}/{plural}/{}/{}{selector}",
            self.namespace, object.name, metric.name
        );
        let items = self.get(&path).await.map_err(why)?;
        let value = items.first().and_then(|item| milli(&item["value"]));
        value.ok_or_else(|| "no metrics returned from custom metrics API".to_owned())
    }

    /// The sum of an external metric's series.
    pub async fn external(&self, metric: &MetricIdentifier) -> Result<i64, String> {
        let why = |error| format!("unable to fetch metrics from external metrics API: {error}");
        let selector = of_metric(metric, "?labelSelector=");
        let path = format!("{EXTERNAL}/namespaces/{}/{}{selector}", self.namespace, metric.name);
        let items = self.get(&path).await.map_err(why)?;
        if items.is_empty() {
            return Err("no metrics returned from external metrics API".to_owned());
        }
        Ok(items.iter().filter_map(|item| milli(&item["value"])).fold(0, i64::saturating_add))
    }
}

fn of_metric(metric: &MetricIdentifier, parameter: &str) -> String {
    let selector = metric.selector.clone().and_then(|s| Selector::try_from(s).ok());
    selector.map_or_else(String::new, |s| format!("{parameter}{}", escaped(&s.to_string())))
}
