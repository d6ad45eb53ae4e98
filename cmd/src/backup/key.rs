//! The owner's key of sealed backups.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;

/// 256 bits, as AES-256 takes them. No password: those are guessed.
pub struct Key([u8; 32]);

impl Key {
    /// Reads 32 bytes in hex (`openssl rand -hex 32`) or base64. The error names the file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let text = text.trim();
        let bytes = coracle_api::hex::bytes(text)
            .filter(|bytes| bytes.len() == 32)
            .or_else(|| STANDARD.decode(text).ok());
        let key = bytes.and_then(|bytes| bytes.try_into().ok()).map(Self);
        key.ok_or_else(|| {
            format!(
                "{}: a key is 32 random bytes in hex or base64, such as `openssl rand -hex 32` makes",
                path.display()
            )
        })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    #[cfg(test)]
    pub fn of(byte: u8) -> Self {
        Self([byte; 32])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hex_or_base64_and_nothing_that_can_be_guessed() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("key");
        let read = |text: &str| {
            std::fs::write(&path, text).expect("written");
            Key::read(&path).map(|key| key.0)
        };
        assert_eq!(read(&"0a".repeat(32)), Ok([10; 32]));
        assert_eq!(read(&format!("{}\n", STANDARD.encode([7; 32]))), Ok([7; 32]));
        for bad in ["", "secret", &"0a".repeat(31), &"zz".repeat(32), &STANDARD.encode([7; 31])] {
            assert!(read(bad).expect_err(bad).ends_with("such as `openssl rand -hex 32` makes"), "{bad}");
        }
        assert!(Key::read(&dir.path().join("none")).is_err());
    }
}
