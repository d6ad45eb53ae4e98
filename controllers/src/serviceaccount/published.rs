//! The CA that is published, which may be replaced while all runs.

use std::future::Future;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// PEM of the authorities that the API server's certificate is believed by; of now, or followed. By default there are none,
/// and nothing is published.
#[derive(Clone, Default)]
pub struct RootCa(Option<watch::Receiver<String>>);

impl RootCa {
    /// Of now.
    pub fn pem(&self) -> String {
        self.0.as_ref().map(|followed| followed.borrow().clone()).unwrap_or_default()
    }

    /// Runs with the PEM of now, and again with each other one, until `stop`. A run has to end with its token.
    pub(super) async fn each<R: Future<Output = ()>>(
        mut self,
        stop: CancellationToken,
        run: impl Fn(String, CancellationToken) -> R,
    ) {
        while !stop.is_cancelled() {
            let pem = self.0.as_mut().map(|followed| followed.borrow_and_update().clone());
            let this = stop.child_token();
            let ends = this.clone().drop_guard();
            tokio::select! {
                () = run(pem.unwrap_or_default(), this) => {}
                () = self.changed() => {}
            }
            drop(ends);
        }
    }

    async fn changed(&mut self) {
        let told = match &mut self.0 {
            Some(followed) => followed.changed().await.is_ok(),
            None => false,
        };
        if !told {
            std::future::pending().await
        }
    }
}

impl From<watch::Receiver<String>> for RootCa {
    fn from(followed: watch::Receiver<String>) -> Self {
        Self(Some(followed))
    }
}

/// One that stays.
impl From<String> for RootCa {
    fn from(pem: String) -> Self {
        Self(Some(watch::channel(pem).1))
    }
}
