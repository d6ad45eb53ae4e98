//! `coracle cert`: what certificates there are and how long they are good, new ones, and taking them back.

mod admin;
mod check;
mod found;
pub mod metrics;
mod part;
mod revoke;
pub mod revoked;
mod rotate;

use crate::args::{CertAction, CertArgs};
use crate::parts::args::KubeconfigArgs;
use coracle_apiserver::pki::RENEW_REQUEST;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// A running server looks every 15 seconds; one that is busy gets a little more.
const RENEWED_TIMEOUT: Duration = Duration::from_secs(30);
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

pub async fn command(args: CertArgs) -> ExitCode {
    let done = match args.action {
        CertAction::Check { data_dir, kubeconfig } => check::run(&data_dir, &kubeconfig),
        CertAction::Renew { data_dir } => renew(&data_dir).await,
        CertAction::RotateCa(args) => rotate::run(&args),
        CertAction::Admin(args) => admin::run(args),
        CertAction::Revoke { certificate, admin, kubeconfig } => {
            revoke::run(certificate, admin, &kubeconfig).await
        }
        CertAction::Revoked { kubeconfig } => revoked::list(&kubeconfig).await,
    };
    told(done)
}

/// `coracle kubeconfig`.
pub async fn kubeconfig(args: KubeconfigArgs) -> ExitCode {
    told(part::run(args))
}

fn told(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("coracle: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Asks whoever keeps the certificates: the server has them in memory, too.
async fn renew(data_dir: &Path) -> Result<(), String> {
    let dir = data_dir.join("pki");
    if !dir.join("apiserver.crt").exists() {
        return Err(format!(
            "{}: these are not a server's; a joined machine renews its own when four fifths of their life are over",
            dir.display()
        ));
    }
    let request = dir.join(RENEW_REQUEST);
    std::fs::write(&request, "").map_err(|e| format!("{}: {e}", request.display()))?;
    let until = Instant::now() + RENEWED_TIMEOUT;
    while Instant::now() < until {
        if !request.exists() {
            println!("renewed, and the administrator's kubeconfig with them");
            return Ok(());
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    println!("no server answers here: the certificates are renewed soon after it starts");
    Ok(())
}
