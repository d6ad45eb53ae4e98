//! How much of a hash a hand of queues uses up.

/// Bits of a hash that a hand may use up, as upstream's limit: with more, hands were no longer equally likely.
pub const MAX_ENTROPY_BITS: u32 = 60;

/// Bits that a hand needs.
pub fn entropy_bits(deck: u32, hand: u32) -> u32 {
    let bits: f64 = (0..hand).map(|dealt| f64::from(deck.saturating_sub(dealt).max(1)).log2()).sum();
    // At most 32 bits for each card of a hand that was checked to be short.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small non-negative number")]
    let whole = bits.ceil() as u32;
    whole
}
