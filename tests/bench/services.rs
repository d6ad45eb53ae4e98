//! The proxy in each mode that this kernel has: how soon a change of an EndpointSlice is in force with few and with many
//! Services of ten endpoints, how long everything takes at a start, what that costs in memory and at rest, and what a
//! connection through a Service costs against a direct one.
//!
//! Each server is in a network namespace of its own, where every endpoint's address is the machine's, so that one listener
//! is all of them and says which was asked for.

use crate::http::Call;
use crate::load::{count, median};
use crate::server::Server;
use crate::table::{Row, figure, skipped};
use crate::{Error, Settings};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MODES: [&str; 4] = ["iptables", "nftables", "ipvs", "userspace"];
const SERVICES: [usize; 3] = [10, 1_000, 10_000];
const ENDPOINTS: usize = 10;
/// A chain for each of a hundred thousand endpoints, and a listener for each Service, are more than is waited for here.
const MOST: [(&str, usize); 2] = [("iptables", 1_000), ("userspace", 1_000)];
const WITHOUT_PROXY: [&str; 4] =
    ["--disable", "kubelet,proxy,network,dns,load-balancers", "--node-name", "bench"];
const WITH_PROXY: [&str; 4] = ["--disable", "kubelet,network,dns,load-balancers", "--node-name", "bench"];
/// Where endpoints listen.
const PORT: u16 = 8080;
/// The Service whose endpoint moves; it has the last address of those that are asked.
const MOVING: &str = "moving";
const PATIENCE: Duration = Duration::from_secs(600);

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(vec![skipped("Services by mode", "network namespaces need root")]);
    }
    let mut rows = Vec::new();
    for services in SERVICES.map(|n| if n > 10 { settings.amount(n) } else { n }) {
        let mut dir = prepare(settings, services).await?;
        for mode in MODES {
            let label = format!("{mode}, {services} Services");
            let most = MOST.iter().find(|(name, _)| *name == mode).map_or(usize::MAX, |(_, most)| *most);
            if mode == "ipvs" && !Path::new("/proc/net/ip_vs").exists() {
                rows.push(skipped(label, "this kernel has no IPVS"));
            } else if services > most {
                rows.push(skipped(label, "not measured with so many"));
            } else {
                let (more, left) = measured(settings, mode, label, dir).await?;
                rows.extend(more);
                dir = left;
            }
        }
    }
    Ok(rows)
}

fn metadata(name: &str) -> Value {
    json!({ "name": name, "labels": { "kubernetes.io/service-name": name } })
}

fn slice(name: &str, addresses: &[Ipv4Addr]) -> Value {
    let endpoints: Vec<Value> =
        addresses.iter().map(|ip| json!({ "addresses": [ip], "conditions": { "ready": true } })).collect();
    json!({ "metadata": metadata(name), "addressType": "IPv4", "endpoints": endpoints,
        "ports": [{ "name": "web", "port": PORT, "protocol": "TCP" }] })
}

/// Addresses of 10.128.0.0/9.
fn endpoint(n: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x0a80_0001 + u32::try_from(n).unwrap_or(0))
}

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// A data directory with so many Services.
async fn prepare(settings: &Settings, services: usize) -> Result<TempDir, Error> {
    let server = Server::start(&settings.binary, &WITHOUT_PROXY).await?;
    server.namespace("default").await?;
    let mut connection = server.target.connect().await?;
    for n in 0..services {
        let name = if n + 1 == services { MOVING.to_owned() } else { format!("web-{n}") };
        let service =
            json!({ "metadata": { "name": name }, "spec": { "ports": [{ "name": "web", "port": 80 }] } });
        connection.call(Call::post("/api/v1/namespaces/default/services", service.to_string())).await?;
        let addresses: Vec<Ipv4Addr> = (0..ENDPOINTS).map(|k| endpoint(n * ENDPOINTS + k)).collect();
        connection.call(Call::post(SLICES, slice(&name, &addresses).to_string())).await?;
    }
    let node = json!({ "metadata": { "name": "bench" } });
    connection.call(Call::post("/api/v1/nodes", node.to_string())).await?;
    server.stop()
}

/// Rows of one mode, in a namespace of its own.
async fn measured(
    settings: &Settings,
    mode: &'static str,
    label: String,
    dir: TempDir,
) -> Result<(Vec<Row>, TempDir), Error> {
    let server = Server::start_in(dir, &settings.binary, &WITHOUT_PROXY).await?;
    let document = format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: 10.42.0.0/16\nmode: {mode}\n"
    );
    let patch = json!({ "data": { "config.conf": document } }).to_string();
    let map = "/api/v1/namespaces/kube-system/configmaps/kube-proxy";
    server.target.connect().await?.call(Call::merge_patch(map, patch)).await?;
    let dir = server.stop()?;
    let (binary, changes, time) = (settings.binary.clone(), settings.amount(21), settings.time(10));
    let thread = std::thread::spawn(move || {
        namespace()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(inside(&binary, &label, dir, changes, time))
    });
    thread.join().map_err(|_| "the namespace's thread panicked")?
}

fn namespace() -> Result<(), Error> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let script = "ip link set lo up; ip route add local 10.128.0.0/9 dev lo
        ip link add outside type veth peer name other; ip link set other up; ip address add 192.0.2.1/24 dev outside; ip link set outside up
        ip route add default via 192.0.2.254";
    let output = Command::new("sh").args(["-ec", script]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let listener = TcpListener::bind(("0.0.0.0", PORT))?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    Ok(())
}

/// Says its address at first; then takes whatever comes, and confirms it when the other side has written everything.
fn serve(mut stream: TcpStream) {
    let Ok(SocketAddr::V4(own)) = stream.local_addr() else { return };
    if stream.write_all(&own.ip().octets()).is_err() {
        return;
    }
    let mut buffer = vec![0; 1 << 16];
    while stream.read(&mut buffer).is_ok_and(|read| read > 0) {}
    // Who asked only for the address is gone.
    let _ = stream.write_all(&[1]);
}

/// Which endpoint answers.
fn ask(to: SocketAddr) -> Option<(TcpStream, Ipv4Addr)> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_millis(200)).ok()?;
    stream.set_read_timeout(Some(Duration::from_millis(500))).ok()?;
    let mut address = [0; 4];
    stream.read_exact(&mut address).ok()?;
    Some((stream, address.into()))
}

/// Time until an endpoint answers that is wanted.
async fn answered(to: SocketAddr, wanted: impl Fn(Ipv4Addr) -> bool) -> Result<Duration, Error> {
    let begun = Instant::now();
    while !ask(to).is_some_and(|(_, by)| wanted(by)) {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{to} does not answer as it should within {PATIENCE:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(begun.elapsed())
}

async fn inside(
    binary: &Path,
    label: &str,
    dir: TempDir,
    changes: usize,
    time: Duration,
) -> Result<(Vec<Row>, TempDir), Error> {
    let server = Server::start_in(dir, binary, &WITH_PROXY).await?;
    let mut connection = server.target.connect().await?;
    let service = connection.json(Call::get(format!("/api/v1/namespaces/default/services/{MOVING}"))).await?;
    let ip: Ipv4Addr = service["spec"]["clusterIP"].as_str().unwrap_or_default().parse()?;
    let to = SocketAddr::from((ip, 80));
    let whole = answered(to, |_| true).await?;
    let mut times = Vec::new();
    for n in 0..changes {
        // Of addresses that no other Service has.
        let new = endpoint(200_000 + n);
        let patch = slice(MOVING, &[new]);
        let begun = Instant::now();
        connection.call(Call::merge_patch(format!("{SLICES}/{MOVING}"), patch.to_string())).await?;
        answered(to, |by| by == new).await?;
        times.push(begun.elapsed());
    }
    let direct = SocketAddr::from((endpoint(200_000), PORT));
    let (near, far) = (connections(direct, 500)?, connections(to, 500)?);
    let (straight, through) = (throughput(direct, time / 5)?, throughput(to, time / 5)?);
    // What the changes left to do is done.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = server.process().exact_cpu()?;
    tokio::time::sleep(time).await;
    let used = server.process().exact_cpu()?.saturating_sub(before);
    let rows = vec![
        figure(format!("{label}: EndpointSlice to rule, p50"), median(times), "ms", changes),
        figure(format!("{label}: all in force after a start"), whole.as_secs_f64() * 1000.0, "ms", 1),
        figure(format!("{label}: memory"), server.process().anonymous_mib()?, "MiB", 1),
        figure(format!("{label}: a connection more than direct"), (far - near) * 1000.0, "us", 500),
        figure(format!("{label}: throughput of direct"), through / straight * 100.0, "%", 1),
        figure(format!("{label}: CPU at rest"), used.as_secs_f64() * 1000.0 / time.as_secs_f64(), "ms/s", 1),
    ];
    Ok((rows, server.stop()?))
}

/// The median time of a connection and its first bytes, in milliseconds.
fn connections(to: SocketAddr, n: usize) -> Result<f64, Error> {
    let mut times = Vec::new();
    for _ in 0..n {
        let begun = Instant::now();
        ask(to).ok_or_else(|| format!("{to} does not answer"))?;
        times.push(begun.elapsed());
    }
    Ok(median(times))
}

/// MiB a second over one connection.
fn throughput(to: SocketAddr, time: Duration) -> Result<f64, Error> {
    let (mut stream, _) = ask(to).ok_or_else(|| format!("{to} does not answer"))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let (piece, begun, mut sent) = (vec![0; 1 << 16], Instant::now(), 0);
    while begun.elapsed() < time {
        stream.write_all(&piece)?;
        sent += 1;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut done = [0];
    stream.read_exact(&mut done)?;
    Ok(count(sent) / 16.0 / begun.elapsed().as_secs_f64())
}
