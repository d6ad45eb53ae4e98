//! What the controllers do with a thousand of something, on simulated nodes with the store in memory; and what they
//! cost when nothing changes.

use crate::http::{Call, Target, Watch};
use crate::load::{Limit, closed_loop, count};
use crate::requests::Requests;
use crate::server::{ROOTLESS, Server};
use crate::table::{Row, figure};
use crate::{Error, Settings};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// What has not gone on by then never will.
const PATIENCE: Duration = Duration::from_secs(60);
const CLIENTS: usize = 16;
const NODES: usize = 100;

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let mut rows = deployment(settings).await?;
    rows.extend(jobs(settings).await?);
    rows.extend(namespace(settings).await?);
    rows.extend(quiet(settings).await?);
    Ok(rows)
}

async fn server(settings: &Settings, nodes: usize) -> Result<Server, Error> {
    let number = nodes.to_string();
    let flags = [ROOTLESS[0], ROOTLESS[1], "--storage-backend", "memory", "--simulate-nodes", &number];
    let server = Server::start(&settings.binary, &flags).await?;
    server.namespace("default").await?;
    server.nodes_ready(nodes).await?;
    Ok(server)
}

/// How a figure is called: with the amount, which `--quick` makes smaller.
fn named(text: &str, amount: usize) -> String {
    let amount =
        if amount >= 1000 { format!("{},{:03}", amount / 1000, amount % 1000) } else { amount.to_string() };
    text.replace("N ", &format!("{amount} "))
}

/// Takes events until one's object is as wanted; says what was seen last when nothing comes any more.
async fn until(watch: &mut Watch, wanted: impl Fn(&Value) -> bool) -> Result<(), Error> {
    let mut last = Value::Null;
    loop {
        let event = tokio::time::timeout(PATIENCE, watch.event()).await;
        let event =
            event.map_err(|_| format!("nothing for {PATIENCE:?} after {}", last["object"]["status"]))??;
        let event: Value = serde_json::from_slice(&event)?;
        if wanted(&event) {
            return Ok(());
        }
        last = event;
    }
}

/// Time, processor and requests that something takes.
struct Stretch<'a> {
    server: &'a Server,
    begun: Instant,
    cpu: Duration,
    requests: Requests,
}

impl<'a> Stretch<'a> {
    async fn begin(server: &'a Server) -> Result<Self, Error> {
        let requests = Requests::of(&server.target).await?;
        Ok(Self { server, begun: Instant::now(), cpu: server.process().cpu()?, requests })
    }

    /// Rows for what was done to `amount` objects; the load itself made `own` of the requests.
    async fn end(self, name: &str, amount: usize, own: usize) -> Result<Vec<Row>, Error> {
        let millis = self.begun.elapsed().as_secs_f64() * 1000.0;
        let cpu = (self.server.process().cpu()? - self.cpu).as_secs_f64() * 1000.0 / count(amount);
        // Events are written a moment later.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let requests = Requests::of(&self.server.target).await?.since(&self.requests);
        let each = |n: f64| n / count(amount);
        Ok(vec![
            figure(name, millis, "ms", amount),
            figure(format!("{name}: server CPU each"), cpu, "ms", amount),
            figure(format!("{name}: requests each"), each(requests.work() - count(own)), "", amount),
            figure(format!("{name}: events written each"), each(requests.events()), "", amount),
        ])
    }
}

fn pod_spec(image: &str) -> Value {
    let resources = json!({"requests": {"cpu": "1m", "memory": "1Mi"}});
    json!({"containers": [{"name": "main", "image": image, "resources": resources}]})
}

fn number(event: &Value, field: &str) -> u64 {
    event["object"]["status"][field].as_u64().unwrap_or(0)
}

/// A Deployment to all ready, and its rolling update with upstream's defaults (a quarter at a time).
async fn deployment(settings: &Settings) -> Result<Vec<Row>, Error> {
    let replicas = settings.amount(1000);
    let server = server(settings, NODES).await?;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let watch = server.target.connect().await?;
    let mut watch = watch.watch(format!("{path}?watch=true&fieldSelector=metadata.name%3Dload")).await?;
    let labels = json!({"app": "load"});
    let template = json!({"metadata": {"labels": labels}, "spec": pod_spec("registry.example/app:1.0")});
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": labels}, "template": template});
    let object =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "load"}, "spec": spec});
    let wanted = u64::try_from(replicas)?;
    let mut connection = server.target.connect().await?;
    let stretch = Stretch::begin(&server).await?;
    connection.call(Call::post(path, object.to_string())).await?;
    until(&mut watch, |event| number(event, "readyReplicas") == wanted).await?;
    let mut rows = stretch.end(&named("Deployment of N to all ready", replicas), replicas, 1).await?;
    let stretch = Stretch::begin(&server).await?;
    let update = json!({"spec": {"template": {"spec": pod_spec("registry.example/app:2.0")}}});
    connection.call(Call::merge_patch(format!("{path}/load"), update.to_string())).await?;
    until(&mut watch, |event| {
        let all = ["replicas", "updatedReplicas", "availableReplicas"];
        event["object"]["metadata"]["generation"] == event["object"]["status"]["observedGeneration"]
            && all.iter().all(|field| number(event, field) == wanted)
    })
    .await?;
    rows.extend(stretch.end(&named("rolling update of N pods", replicas), replicas, 1).await?);
    Ok(rows)
}

/// Jobs of one pod each that has nothing to do, from the first one's creation to the last one's completion.
async fn jobs(settings: &Settings) -> Result<Vec<Row>, Error> {
    let amount = settings.amount(1000);
    let server = server(settings, NODES).await?;
    let path = "/apis/batch/v1/namespaces/default/jobs";
    let mut watch = server.target.connect().await?.watch(format!("{path}?watch=true")).await?;
    let stretch = Stretch::begin(&server).await?;
    let limit = Limit { time: PATIENCE, calls: u64::try_from(amount)? };
    let made = closed_loop(&server.target, CLIENTS, limit, move |n| {
        let mut spec = pod_spec("registry.example/app:1.0");
        spec["restartPolicy"] = json!("Never");
        let annotations = json!({"simulate.coracle.local/duration": "0s"});
        let spec = json!({"template": {"metadata": {"annotations": annotations}, "spec": spec}});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": format!("job-{n}")}, "spec": spec});
        Call::post(path, job.to_string())
    });
    let mut left: std::collections::HashSet<String> = (0..amount).map(|n| format!("job-{n}")).collect();
    let completed = async {
        while !left.is_empty() {
            let event = tokio::time::timeout(PATIENCE, watch.event()).await;
            let event = event.map_err(|_| format!("{} Jobs not complete, then nothing", left.len()))??;
            let event: Value = serde_json::from_slice(&event)?;
            let mut conditions = event["object"]["status"]["conditions"].as_array().into_iter().flatten();
            if conditions.any(|c| c["type"] == "Complete" && c["status"] == "True") {
                left.remove(event["object"]["metadata"]["name"].as_str().unwrap_or_default());
            }
        }
        Ok::<_, Error>(())
    };
    let (made, completed) = tokio::join!(made, completed);
    made?;
    completed?;
    stretch.end(&named("N Jobs of one pod each", amount), amount, amount).await
}

/// A namespace full of everything, from its deletion to its end.
async fn namespace(settings: &Settings) -> Result<Vec<Row>, Error> {
    const NAME: &str = "doomed";
    let amount = settings.amount(5000);
    let server = server(settings, NODES).await?;
    server.namespace(NAME).await?;
    let limit = Limit { time: PATIENCE, calls: u64::try_from(amount)? };
    let base = format!("/api/v1/namespaces/{NAME}");
    closed_loop(&server.target, CLIENTS, limit, move |n| {
        let meta = json!({"name": format!("o-{n}")});
        match n % 5 {
            0 => {
                let pod = json!({"metadata": meta, "spec": pod_spec("registry.example/app:1.0")});
                Call::post(format!("{base}/pods"), pod.to_string())
            }
            1 => Call::post(
                format!("{base}/secrets"),
                json!({"metadata": meta, "data": {"a": "YQ=="}}).to_string(),
            ),
            2 => Call::post(format!("{base}/serviceaccounts"), json!({"metadata": meta}).to_string()),
            _ => Call::post(
                format!("{base}/configmaps"),
                json!({"metadata": meta, "data": {"a": "b"}}).to_string(),
            ),
        }
    })
    .await?;
    let path = "/api/v1/namespaces";
    let watch = server.target.connect().await?;
    let mut watch = watch.watch(format!("{path}?watch=true&fieldSelector=metadata.name%3D{NAME}")).await?;
    let mut connection = server.target.connect().await?;
    let stretch = Stretch::begin(&server).await?;
    connection.call(Call::delete(format!("{path}/{NAME}"))).await?;
    until(&mut watch, |event| event["type"] == "DELETED").await?;
    stretch.end(&named("deletion of a namespace with N objects", amount), amount, 1).await
}

/// Many objects of every controller's, none of which has anything to do.
async fn fill(target: &Target, amount: u64) -> Result<(), Error> {
    let limit = Limit { time: PATIENCE, calls: amount };
    closed_loop(target, CLIENTS, limit, |n| {
        let (name, labels) = (format!("quiet-{n}"), json!({"app": format!("quiet-{n}")}));
        let template = json!({"metadata": {"labels": labels}, "spec": pod_spec("registry.example/app:1.0")});
        let selector = json!({"matchLabels": labels});
        let meta = json!({"name": name});
        let (group, plural, object) = match n % 5 {
            0 => ("apps", "deployments", json!({"replicas": 3, "selector": selector, "template": template})),
            1 => (
                "apps",
                "statefulsets",
                json!({"replicas": 2, "serviceName": name, "selector": selector, "template": template}),
            ),
            2 => ("apps", "daemonsets", json!({"selector": selector, "template": template})),
            3 => {
                let mut template = template;
                template["spec"]["restartPolicy"] = json!("Never");
                let job = json!({"spec": {"template": template}});
                ("batch", "cronjobs", json!({"schedule": "0 0 1 1 *", "jobTemplate": job}))
            }
            _ => ("policy", "poddisruptionbudgets", json!({"minAvailable": 1, "selector": selector})),
        };
        let body = json!({"apiVersion": format!("{group}/v1"), "metadata": meta, "spec": object});
        Call::post(format!("/apis/{group}/v1/namespaces/default/{plural}"), body.to_string())
    })
    .await?;
    Ok(())
}

/// Processor time of the whole server over a while in which nobody asks anything: with the controllers, and on the same
/// data without them. No nodes, because their heartbeats are changes.
async fn quiet(settings: &Settings) -> Result<Vec<Row>, Error> {
    let amount = settings.amount(1000);
    let server = Server::start(&settings.binary, &ROOTLESS).await?;
    server.namespace("default").await?;
    fill(&server.target, u64::try_from(amount)?).await?;
    let with = rest(settings, &server).await?;
    let dir = server.stop()?;
    let flags = [ROOTLESS[0], "kubelet,proxy,dns,controllers"];
    let server = Server::start_in(dir, &settings.binary, &flags).await?;
    let without = rest(settings, &server).await?;
    let name = named("N objects at rest", amount);
    Ok(vec![
        figure(format!("{name}: CPU of the whole server"), with, "ms/s", amount),
        figure(format!("{name}: CPU without controllers"), without, "ms/s", amount),
        figure(format!("{name}: CPU of all controllers"), (with - without).max(0.0), "ms/s", amount),
    ])
}

/// Milliseconds of processor time a second, to a microsecond, once the server has settled.
async fn rest(settings: &Settings, server: &Server) -> Result<f64, Error> {
    // What the objects' creation set off, the events of it and the pages of the start are over by then.
    tokio::time::sleep(settings.time(40)).await;
    let (begun, cpu) = (Instant::now(), server.process().exact_cpu()?);
    tokio::time::sleep(settings.time(30)).await;
    let used = server.process().exact_cpu()?.saturating_sub(cpu);
    Ok(used.as_secs_f64() * 1000.0 / begun.elapsed().as_secs_f64())
}
