//! The kernel's routes, by way of `ip` of iproute2. Ours carry a protocol number of their own, so that nobody else's are
//! touched and an earlier run's are known again.

use super::plan::Routes;
use crate::family::Family;
use serde::Deserialize;
use std::net::IpAddr;
use std::process::Stdio;
use tokio::process::Command;

/// Of rtm_protocol; free in iproute2's table.
const PROTOCOL: &str = "143";

#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    #[error("ip could not be run: {0}")]
    Run(#[source] std::io::Error),
    #[error("ip route {what}: {why}")]
    Refused { what: String, why: String },
    #[error("ip route show: {0}")]
    Unreadable(#[from] serde_json::Error),
}

#[derive(Deserialize)]
struct Shown {
    dst: String,
    gateway: Option<IpAddr>,
}

async fn ip(args: &[&str]) -> Result<Vec<u8>, RouteError> {
    let output = Command::new("ip").args(args).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = output.await.map_err(RouteError::Run)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    Err(RouteError::Refused { what: args.join(" "), why })
}

/// Ours, as the kernel has them.
pub async fn present() -> Result<Routes, RouteError> {
    let mut all = Routes::new();
    for family in Family::ALL.into_iter().filter(|family| family.is_there()) {
        all.extend(read(&ip(&["-j", option(family), "route", "show", "proto", PROTOCOL]).await?)?);
    }
    Ok(all)
}

fn option(family: Family) -> &'static str {
    match family {
        Family::V4 => "-4",
        Family::V6 => "-6",
    }
}

fn read(output: &[u8]) -> Result<Routes, RouteError> {
    // Without any route some versions print nothing at all.
    let text = if output.trim_ascii().is_empty() { b"[]" } else { output };
    let shown: Vec<Shown> = serde_json::from_slice(text)?;
    Ok(shown.into_iter().filter_map(|route| Some((route.dst, route.gateway?))).collect())
}

/// # Errors
/// `Refused` where the gateway is on no network of this machine.
pub async fn replace(range: &str, gateway: IpAddr) -> Result<(), RouteError> {
    ip(&[
        option(Family::of_network(range)),
        "route",
        "replace",
        range,
        "via",
        &gateway.to_string(),
        "proto",
        PROTOCOL,
    ])
    .await
    .map(|_| ())
}

/// Harmless when it is gone already.
pub async fn remove(range: &str) -> Result<(), RouteError> {
    match ip(&[option(Family::of_network(range)), "route", "del", range, "proto", PROTOCOL]).await {
        Err(RouteError::Refused { .. }) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Takes away every route that was ever written; for `coracle reset`.
pub async fn clean_up() -> Result<(), RouteError> {
    for range in present().await?.keys() {
        remove(range).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ip_prints_is_read() {
        let text = br#"[{"dst":"10.42.1.0/24","gateway":"192.0.2.2","dev":"eth0","flags":[]},{"dst":"10.42.9.0/24","dev":"x","flags":[]}]"#;
        let routes = read(text).expect("valid");
        assert_eq!(routes, Routes::from([("10.42.1.0/24".to_owned(), [192, 0, 2, 2].into())]));
        let six = read(br#"[{"dst":"fd42:0:0:1::/64","gateway":"2001:db8::2","dev":"eth0","metric":1024,"flags":[],"pref":"medium"}]"#);
        assert_eq!(six.expect("valid").into_keys().collect::<Vec<_>>(), ["fd42:0:0:1::/64"]);
        assert!(read(b"\n").expect("nothing").is_empty());
        assert!(read(b"Object \"x\" is unknown").is_err());
    }
}
