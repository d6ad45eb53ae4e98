//! Detached JSON Web Signatures, HS256 (RFC 7515, appendix F).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

const BLOCK_BYTES: usize = 64;

/// `header..signature` of the content, by the token with this id.
pub fn detached(content: &str, id: &str, key: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(format!("{{\"alg\":\"HS256\",\"kid\":\"{id}\"}}"));
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(hmac(key.as_bytes(), signed.as_bytes())))
}

/// HMAC-SHA256, RFC 2104.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0u8; BLOCK_BYTES];
    if key.len() > BLOCK_BYTES {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let padded = |with: u8| block.map(|b| b ^ with);
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cases 2 and 6 of RFC 4231.
    #[test]
    fn known_authentication_codes() {
        let hex = |bytes: [u8; 32]| coracle_api::hex::text(&bytes);
        assert_eq!(
            hex(hmac(b"Jefe", b"what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hex(hmac(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn the_content_is_left_out() {
        let text = detached("content", "abcdef", "0123456789abcdef");
        let parts: Vec<&str> = text.split('.').collect();
        assert_eq!(parts.len(), 3);
        assert_eq!(URL_SAFE_NO_PAD.decode(parts[0]).unwrap(), br#"{"alg":"HS256","kid":"abcdef"}"#);
        assert_eq!(parts[1], "");
        assert_ne!(text, detached("other", "abcdef", "0123456789abcdef"));
    }
}
