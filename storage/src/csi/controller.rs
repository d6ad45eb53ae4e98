//! A driver's controller service: who makes, attaches, grows and deletes its volumes.

use super::client::{CallError, PluginClient};
use super::controller_messages::{
    CONTROLLER_GET_CAPABILITIES, ControllerGetCapabilitiesResponse, ControllerRpcType,
    GET_PLUGIN_CAPABILITIES, GetPluginCapabilitiesResponse, PROBE, PluginServiceType, ProbeResponse,
};
use super::messages::Empty;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// A controller service that answers, and what it can.
#[derive(Clone, Debug)]
pub struct ControllerService {
    pub client: PluginClient,
    /// Whether its volumes are reached from some nodes only, so that it wants to be told where they are to be.
    pub has_topology: bool,
    capabilities: BTreeSet<ControllerRpcType>,
}

impl ControllerService {
    /// Asks the driver at `socket`; `None` where it has no controller service.
    pub async fn connect(socket: &Path, timeout: Duration) -> Result<Option<Self>, CallError> {
        let client = PluginClient::new(socket, timeout);
        probe(&client).await?;
        let plugin: GetPluginCapabilitiesResponse = client.call(GET_PLUGIN_CAPABILITIES, Empty {}).await?;
        let has = |what: PluginServiceType| {
            let services = plugin.capabilities.iter().filter_map(|capability| capability.service.as_ref());
            services.into_iter().any(|service| service.r#type == what as i32)
        };
        if !has(PluginServiceType::ControllerService) {
            return Ok(None);
        }
        let answer: ControllerGetCapabilitiesResponse =
            client.call(CONTROLLER_GET_CAPABILITIES, Empty {}).await?;
        let capabilities = answer.capabilities.into_iter().filter_map(|capability| {
            // What this version does not know is nothing that it could use.
            ControllerRpcType::try_from(capability.rpc?.r#type).ok()
        });
        let has_topology = has(PluginServiceType::VolumeAccessibilityConstraints);
        Ok(Some(Self { client, has_topology, capabilities: capabilities.collect() }))
    }

    pub fn can(&self, what: ControllerRpcType) -> bool {
        self.capabilities.contains(&what)
    }
}

/// Whether the driver says that it can be called; one that is still looking for its storage may say something else.
async fn probe(client: &PluginClient) -> Result<(), CallError> {
    let failed =
        |code, message: &str| CallError::Failed { method: "Probe", code, message: message.to_owned() };
    match client.call::<_, ProbeResponse>(PROBE, Empty {}).await {
        Ok(answer) if answer.ready.as_ref().is_none_or(|ready| ready.value) => Ok(()),
        Ok(_) => Err(failed(tonic::Code::Unavailable, "the driver is not ready yet")),
        // The specification wants the call; those without it are called all the same.
        Err(CallError::Failed { code: tonic::Code::Unimplemented, .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
