//! The server's side of the door.

use crate::backup;
use crate::config::Config;
use crate::door::{FrameWriter, Request, SOCKET, Step, short_path};
use coracle_apiserver::store::SledStore;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as Stream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// A command that takes or gives nothing for so long has gone, or hangs.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Commands at a time. Each has a thread and reads the whole store.
const AT_ONCE: usize = 4;
/// Longer than any request's word.
const LONGEST_WORD: u64 = 64;

/// What writes are told meanwhile.
const MOVING: &str = "the objects are being moved to another store; the server is to be started on that one";

/// Takes a step, and waits for its end; not on a thread of the runtime's own.
pub type Rotate = Arc<dyn Fn(Step) -> Result<String, String> + Send + Sync>;

/// What commands are given.
#[derive(Clone)]
pub struct Inside {
    pub sled: Arc<SledStore>,
    pub config: Arc<Config>,
    pub rotate: Rotate,
}

/// Makes the socket, in place of one that a killed server left.
pub fn open(data_dir: &Path) -> io::Result<UnixListener> {
    let (_dir, path) = short_path(data_dir)?;
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

impl Inside {
    /// Answers until `stop`, and takes the socket away.
    pub async fn serve(self, listener: UnixListener, stop: CancellationToken) {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "the commands' socket");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
            };
            if !is_owner(&stream) {
                continue;
            }
            let Ok(place) = places.clone().acquire_owned().await else { break };
            let inside = self.clone();
            tokio::task::spawn_blocking(move || {
                let _place = place;
                if let Err(error) = stream.into_std().and_then(|stream| inside.answer(stream)) {
                    tracing::debug!(%error, "a command went away");
                }
            });
        }
        // The next start would replace it.
        let _ = std::fs::remove_file(self.config.data_dir.join(SOCKET));
    }

    fn answer(&self, stream: Stream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(SILENCE_TIMEOUT))?;
        stream.set_write_timeout(Some(SILENCE_TIMEOUT))?;
        let mut input = BufReader::new(stream.try_clone()?);
        let mut word = String::new();
        (&mut input).take(LONGEST_WORD).read_line(&mut word)?;
        let mut out = FrameWriter::new(stream);
        let done = match Request::parse(word.trim_end()) {
            None => Err(format!("this server does not know the request {:?}", word.trim_end())),
            Some(request) => self.carry_out(request, &mut out),
        };
        out.end(done)
    }

    /// Not on a thread of the runtime's own.
    fn freeze(&self, why: Option<String>) {
        tokio::runtime::Handle::current().block_on(self.sled.freeze(why));
    }

    fn carry_out(&self, request: Request, out: &mut FrameWriter<Stream>) -> Result<(), String> {
        match request {
            Request::Backup => {
                let site = backup::Site { data_dir: &self.config.data_dir, config: Some(&self.config) };
                backup::write(out, None, &self.sled.picture(), site).map(drop).map_err(|e| e.to_string())
            }
            Request::Export => crate::lines::write(out, &self.sled.picture()).map_err(|e| e.to_string()),
            Request::Move => {
                self.freeze(Some(MOVING.to_owned()));
                tracing::warn!("{MOVING}");
                crate::lines::write(out, &self.sled.picture()).map_err(|e| e.to_string())
            }
            Request::Stay => {
                self.freeze(None);
                tracing::info!("writes are accepted again");
                Ok(())
            }
            Request::RotateCa(step) => {
                let text = (self.rotate)(step)?;
                out.write_all(text.as_bytes()).map_err(|e| e.to_string())
            }
        }
    }
}

/// The same user, or root.
fn is_owner(stream: &UnixStream) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == own || peer.uid() == 0 => true,
        Ok(peer) => {
            tracing::warn!(uid = peer.uid(), "somebody else knocked at the commands' socket");
            false
        }
        Err(error) => {
            tracing::warn!(%error, "nobody knows who knocked at the commands' socket");
            false
        }
    }
}
