//! Registering one plugin (pluginregistration v1): it says what it is, and is told whether it is wanted.

use super::kind::{DiscoveredPlugin, Kind, Refusal};
use coracle_storage::csi::messages::{
    Empty, PluginInfo, REGISTRATION_GET_INFO, REGISTRATION_NOTIFY, RegistrationStatus,
};
use coracle_storage::csi::{CallError, PluginClient};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a plugin may take to say what it is. It does no work for that; upstream gives it one second.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(super) enum RegisterError {
    #[error("no answer to the registration")]
    Registration(#[source] CallError),
    #[error("no handler registered for plugin type: {0}")]
    UnknownType(String),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// A plugin that is registered.
#[derive(Clone)]
pub(super) struct Registered {
    pub offer: DiscoveredPlugin,
    pub kind: Arc<dyn Kind>,
}

/// Asks the plugin behind the socket what it is, takes it on, and tells it so, or why not.
pub(super) async fn register(kinds: &[Arc<dyn Kind>], socket: &Path) -> Result<Registered, RegisterError> {
    let client = PluginClient::new(socket, ANSWER_TIMEOUT);
    let info: PluginInfo =
        client.call(REGISTRATION_GET_INFO, Empty {}).await.map_err(RegisterError::Registration)?;
    let taken = take_on(kinds, socket, info).await;
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

async fn take_on(
    kinds: &[Arc<dyn Kind>],
    socket: &Path,
    info: PluginInfo,
) -> Result<Registered, RegisterError> {
    let kind = kinds.iter().find(|kind| kind.type_name() == info.r#type);
    let kind = kind.ok_or_else(|| RegisterError::UnknownType(info.r#type.clone()))?;
    if info.name.is_empty() {
        return Err(Refusal::NoName.into());
    }
    // What is called is what is remembered, however it was written.
    let named = Path::new(&info.endpoint);
    let endpoint = if info.endpoint.is_empty() { socket } else { named };
    let endpoint = PluginClient::new(endpoint, ANSWER_TIMEOUT).socket().to_owned();
    let offer = DiscoveredPlugin { name: info.name, endpoint, versions: info.supported_versions };
    kind.take_on(&offer).await?;
    Ok(Registered { offer, kind: kind.clone() })
}
