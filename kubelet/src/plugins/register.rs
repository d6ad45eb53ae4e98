//! Registering one plugin (pluginregistration v1): it says what it is, and is told whether it is wanted.

use super::csi_node;
use crate::kubelet::Kubelet;
use coracle_storage::csi::messages::{
    Empty, PluginInfo, REGISTRATION_GET_INFO, REGISTRATION_NOTIFY, RegistrationStatus,
};
use coracle_storage::csi::{CALL_TIMEOUT, CallError, Driver, PluginClient};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a plugin may take to say what it is. It does no work for that; upstream gives it one second.
const ANSWER: Duration = Duration::from_secs(10);

/// The kind of plugins that are CSI drivers.
const CSI_PLUGIN: &str = "CSIPlugin";

#[derive(Debug, thiserror::Error)]
pub(super) enum RegisterError {
    #[error("no answer to the registration")]
    Registration(#[source] CallError),
    #[error("no handler registered for plugin type: {0}")]
    UnknownType(String),
    #[error("a plugin without a name")]
    NoName,
    #[error("none of the versions {0:?} is supported, this kubelet speaks 1")]
    Versions(Vec<String>),
    #[error("the driver's node service does not answer: {0}")]
    Driver(CallError),
    #[error("the node's drivers are not written: {0}")]
    Node(#[from] kube::Error),
}

/// A plugin that is registered.
#[derive(Clone, Debug)]
pub(super) struct Registered {
    pub name: String,
    pub endpoint: PathBuf,
}

/// Asks the plugin behind the socket what it is, takes it on, and tells it so, or why not.
pub(super) async fn register(kubelet: &Kubelet, socket: &Path) -> Result<Registered, RegisterError> {
    let client = PluginClient::new(socket, ANSWER);
    let info: PluginInfo =
        client.call(REGISTRATION_GET_INFO, Empty {}).await.map_err(RegisterError::Registration)?;
    let taken = take_on(kubelet, socket, &info).await;
    let status = RegistrationStatus {
        plugin_registered: taken.is_ok(),
        error: taken.as_ref().err().map(ToString::to_string).unwrap_or_default(),
    };
    let told = client.call::<_, Empty>(REGISTRATION_NOTIFY, status).await;
    let plugin = taken?;
    if let Err(error) = told {
        // It counts as registered on both sides only when it knows; it is tried again.
        return Err(RegisterError::Registration(error));
    }
    Ok(plugin)
}

async fn take_on(kubelet: &Kubelet, socket: &Path, info: &PluginInfo) -> Result<Registered, RegisterError> {
    if info.r#type != CSI_PLUGIN {
        return Err(RegisterError::UnknownType(info.r#type.clone()));
    }
    if info.name.is_empty() {
        return Err(RegisterError::NoName);
    }
    if !info.supported_versions.iter().any(|version| is_version_1(version)) {
        return Err(RegisterError::Versions(info.supported_versions.clone()));
    }
    let endpoint = if info.endpoint.is_empty() { socket.to_owned() } else { PathBuf::from(&info.endpoint) };
    let driver = Driver::connect(&info.name, &endpoint, CALL_TIMEOUT).await.map_err(RegisterError::Driver)?;
    csi_node::add(kubelet, &driver).await?;
    let plugin = Registered { name: info.name.clone(), endpoint: driver.client.socket().to_owned() };
    kubelet.drivers.insert(driver);
    kubelet.drivers_changed();
    Ok(plugin)
}

fn is_version_1(version: &str) -> bool {
    let bare = version.trim_start_matches('v');
    bare == "1" || bare.starts_with("1.")
}

/// Forgets a plugin whose socket is gone, unless it serves at another one by now.
pub(super) async fn forget(kubelet: &Kubelet, plugin: &Registered) {
    if !kubelet.drivers.remove(&plugin.name, &plugin.endpoint) {
        return;
    }
    tracing::info!(plugin = plugin.name, "plugin gone");
    if let Err(error) = csi_node::remove(kubelet, &plugin.name).await {
        tracing::warn!(plugin = plugin.name, %error, "the driver is still shown on the node");
    }
}

#[cfg(test)]
mod tests {
    use super::is_version_1;

    #[test]
    fn version_1_is_spoken() {
        for (version, spoken) in
            [("1.0.0", true), ("v1", true), ("1.11.0", true), ("0.3.0", false), ("10.0", false), ("", false)]
        {
            assert_eq!(is_version_1(version), spoken, "{version:?}");
        }
    }
}
