//! Keys as people write them down.

/// 32 bytes of 64 digits.
pub fn key_of(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let pair = |pair: &[u32]| u8::try_from(pair[0] << 4 | pair[1]).ok();
    let digits = digits.filter(|digits| digits.len() == 64)?;
    digits.chunks_exact(2).map(pair).collect()
}
