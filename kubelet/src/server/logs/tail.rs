//! Where the last lines of a file begin.

use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeek, AsyncSeekExt, SeekFrom};

/// Bytes read at a time, from the end backwards.
const BLOCK: u64 = 32 * 1024;

/// The offset at which the last `lines` lines begin. A last line without newline counts as one.
pub(super) async fn start<F: AsyncRead + AsyncSeek + Unpin>(file: &mut F, lines: u64) -> io::Result<u64> {
    let size = file.seek(SeekFrom::End(0)).await?;
    if lines == 0 {
        return Ok(size);
    }
    let (mut end, mut missing) = (size, lines);
    let mut block = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        block.resize(usize::try_from(end - start).map_err(io::Error::other)?, 0);
        file.seek(SeekFrom::Start(start)).await?;
        file.read_exact(&mut block).await?;
        for (at, byte) in block.iter().enumerate().rev() {
            let offset = start + at as u64 + 1;
            if *byte != b'\n' || offset == size {
                continue;
            }
            missing -= 1;
            if missing == 0 {
                return Ok(offset);
            }
        }
        end = start;
    }
    Ok(0)
}
