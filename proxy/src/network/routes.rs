//! The kernel's routes, by way of `ip` of iproute2. Ours carry a protocol number of their own, so that nobody else's are
//! touched and an earlier run's are known again.

use super::plan::{Mac, Routes, Way};
use super::vxlan;
use crate::family::Family;
use ipnet::IpNet;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::Stdio;
use tokio::process::Command;

/// Of rtm_protocol; free in iproute2's table.
const PROTOCOL: &str = "143";

#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    #[error("{0} could not be run")]
    Run(&'static str, #[source] std::io::Error),
    #[error("{what}: {why}")]
    Refused { what: String, why: String },
    #[error("what ip shows")]
    Unreadable(#[from] serde_json::Error),
}

#[derive(Deserialize)]
struct Shown {
    dst: String,
    gateway: Option<IpAddr>,
    dev: Option<String>,
}

/// One of iproute2's programs to its end; gives what it printed.
pub async fn run(program: &'static str, args: &[&str]) -> Result<Vec<u8>, RouteError> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = output.await.map_err(|error| RouteError::Run(program, error))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    Err(RouteError::Refused { what: format!("{program} {}", args.join(" ")), why })
}

async fn ip(args: &[&str]) -> Result<Vec<u8>, RouteError> {
    run("ip", args).await
}

/// Ours, as the kernel has them.
pub async fn present() -> Result<Routes, RouteError> {
    let mut shown = Vec::new();
    for family in Family::ALL.into_iter().filter(|family| family.is_there()) {
        shown.extend(read(&ip(&["-j", option(family), "route", "show", "proto", PROTOCOL]).await?)?);
    }
    let is_wrapped = |route: &Shown| route.dev.as_deref() == Some(vxlan::DEVICE);
    let ends = if shown.iter().any(is_wrapped) { vxlan::ends().await? } else { BTreeMap::new() };
    let way = |route: Shown| {
        let gateway = route.gateway?;
        if !is_wrapped(&route) {
            return Some((route.dst, Way::Direct(gateway)));
        }
        // One without an end is ours as well, and as no other: it is written again, or goes.
        let (machine, mac) = ends.get(&gateway).copied().unwrap_or((gateway, Mac::default()));
        Some((route.dst, Way::Wrapped(machine, mac)))
    };
    Ok(shown.into_iter().filter_map(way).collect())
}

/// The gateway on the device that wraps: a range's own first address, which no pod has.
pub fn gateway_of(range: &str) -> Option<IpAddr> {
    Some(range.parse::<IpNet>().ok()?.network())
}

fn option(family: Family) -> &'static str {
    match family {
        Family::V4 => "-4",
        Family::V6 => "-6",
    }
}

fn read(output: &[u8]) -> Result<Vec<Shown>, RouteError> {
    // Without any route some versions print nothing at all.
    let text = if output.trim_ascii().is_empty() { b"[]" } else { output };
    Ok(serde_json::from_slice(text)?)
}

/// # Errors
/// `Refused` where the gateway is on no network of this machine, or there is no device to wrap with.
pub async fn replace(range: &str, way: Way) -> Result<(), RouteError> {
    let option = option(Family::of_network(range));
    match (way, gateway_of(range)) {
        (Way::Direct(gateway), _) => {
            let gateway = gateway.to_string();
            ip(&[option, "route", "replace", range, "via", &gateway, "proto", PROTOCOL]).await?;
        }
        (Way::Wrapped(machine, mac), Some(gateway)) => {
            vxlan::place(gateway, machine, mac).await?;
            let gateway = gateway.to_string();
            let by = ["via", gateway.as_str(), "dev", vxlan::DEVICE, "onlink", "proto", PROTOCOL];
            ip(&[&[option, "route", "replace", range][..], &by].concat()).await?;
        }
        (Way::Wrapped(..), None) => {
            return Err(RouteError::Refused { what: range.to_owned(), why: "no range".to_owned() });
        }
    }
    Ok(())
}

/// Harmless when it is gone already.
pub async fn remove(range: &str) -> Result<(), RouteError> {
    match ip(&[option(Family::of_network(range)), "route", "del", range, "proto", PROTOCOL]).await {
        Err(RouteError::Refused { .. }) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Takes away every route that was ever written, and the device; for `coracle reset`.
pub async fn clean_up() -> Result<(), RouteError> {
    for range in present().await?.keys() {
        remove(range).await?;
    }
    vxlan::remove().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ip_prints_is_read() {
        let text = br#"[{"dst":"10.42.1.0/24","gateway":"192.0.2.2","dev":"eth0","flags":[]},{"dst":"10.42.9.0/24","dev":"x","flags":[]}]"#;
        let routes = |text: &[u8]| -> Vec<(String, Option<IpAddr>)> {
            read(text).expect("valid").into_iter().map(|route| (route.dst, route.gateway)).collect()
        };
        let via =
            [("10.42.1.0/24".to_owned(), Some([192, 0, 2, 2].into())), ("10.42.9.0/24".to_owned(), None)];
        assert_eq!(routes(text), via);
        let six = routes(br#"[{"dst":"fd42:0:0:1::/64","gateway":"2001:db8::2","dev":"eth0","metric":1024,"flags":[],"pref":"medium"}]"#);
        assert_eq!(six[0].0, "fd42:0:0:1::/64");
        assert!(routes(b"\n").is_empty());
        assert!(read(b"Object \"x\" is unknown").is_err());
    }
}
