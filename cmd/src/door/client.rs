//! A command's side of the door.

use super::frames::FrameReader;
use super::{Request, SOCKET, short_path};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The server writes as fast as its disk is read; who hears nothing for so long waits for a server that hangs.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// The bytes of the server's answer.
pub type Answer = FrameReader<UnixStream>;

#[derive(Debug, thiserror::Error)]
pub enum KnockError {
    /// No server runs on this directory.
    #[error("no server answers at {0}")]
    NobodyThere(PathBuf),
    #[error("{path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Asks the server that runs on this data directory.
///
/// # Errors
/// `NobodyThere` if none does.
pub fn knock(data_dir: &Path, request: Request) -> Result<Answer, KnockError> {
    let path = data_dir.join(SOCKET);
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => KnockError::NobodyThere(path.clone()),
        _ => KnockError::Io { path: path.clone(), source },
    };
    let (_dir, short) = short_path(data_dir).map_err(failed)?;
    let mut stream = UnixStream::connect(short).map_err(failed)?;
    let asked = (|| {
        stream.set_read_timeout(Some(SILENCE_TIMEOUT))?;
        stream.set_write_timeout(Some(SILENCE_TIMEOUT))?;
        stream.write_all(request.word().as_bytes())?;
        stream.write_all(b"\n")?;
        stream.shutdown(Shutdown::Write)
    })();
    asked.map_err(|source| KnockError::Io { path: path.clone(), source })?;
    Ok(FrameReader::new(stream))
}
