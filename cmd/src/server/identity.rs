//! Who the components are, to the API: the identities that upstream's default roles are written for.

use coracle_api::UserInfo;
use coracle_apiserver::server::ApiServer;
use coracle_client::transport::in_process;

/// Makes clients that call the API server of this process.
#[derive(Clone)]
pub struct Clients {
    api: ApiServer,
}

impl Clients {
    pub fn new(api: ApiServer) -> Self {
        Self { api }
    }

    fn client(&self, user: UserInfo) -> kube::Client {
        in_process::<_, axum::body::Body, _>(self.api.service(), user)
    }

    pub fn user(&self, name: &str) -> kube::Client {
        self.client(UserInfo::authenticated(name, &[]))
    }

    pub fn service_account(&self, name: &str) -> kube::Client {
        self.client(UserInfo::service_account("kube-system", name))
    }

    pub fn node(&self, name: &str) -> kube::Client {
        self.client(UserInfo::authenticated(&format!("system:node:{name}"), &["system:nodes"]))
    }

    /// For what no single role of upstream covers: the shared informers, and simulated nodes, which are many.
    pub fn privileged(&self, name: &str) -> kube::Client {
        self.client(UserInfo::authenticated(name, &["system:masters"]))
    }
}
