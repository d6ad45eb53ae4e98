//! Shuffle sharding: every flow has a small hand of queues, so that two flows seldom share all of theirs.
//!
//! <https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#queuing>

/// More cards than any hand within [`MAX_ENTROPY_BITS`] has: 19! is the last factorial below 2^60.
pub const MAX_HAND: usize = 19;

/// A hand of different queues. Each hash has one; `hand` and `deck` are at least 1, `hand` at most `deck`.
#[derive(Clone, Copy, Debug)]
pub struct Hand {
    cards: [u32; MAX_HAND],
    len: usize,
}

impl Hand {
    pub fn deal(hash: u64, deck: u32, hand: u32) -> Self {
        let (mut cards, mut sorted) = ([0; MAX_HAND], [0; MAX_HAND]);
        let wanted = usize::try_from(hand).unwrap_or(MAX_HAND).min(MAX_HAND);
        let mut rest = hash;
        let mut len = 0;
        while len < wanted {
            let left = u64::from(deck) - len as u64;
            if left == 0 {
                break;
            }
            // The remainder is below `left`, and that below 2^32.
            let mut card = u32::try_from(rest % left).unwrap_or(0);
            rest /= left;
            // The card counts among those that are still in the deck.
            let mut at = 0;
            while at < len && sorted[at] <= card {
                card += 1;
                at += 1;
            }
            sorted.copy_within(at..len, at + 1);
            sorted[at] = card;
            cards[len] = card;
            len += 1;
        }
        Self { cards, len }
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.cards[..self.len].iter().map(|card| *card as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_strategy::flowcontrol::entropy::{MAX_ENTROPY_BITS, entropy_bits};
    use std::collections::BTreeSet;

    #[test]
    fn hands_have_different_cards_of_the_deck() {
        for hash in (0..5000u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)) {
            let cards: BTreeSet<_> = Hand::deal(hash, 16, 4).iter().collect();
            assert_eq!(cards.len(), 4);
            assert!(cards.iter().all(|c| *c < 16));
        }
        assert_eq!(Hand::deal(7, 3, 3).iter().collect::<BTreeSet<_>>().len(), 3);
        assert_eq!(Hand::deal(9, 1, 1).iter().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn all_hands_are_equally_likely() {
        let mut seen = std::collections::BTreeMap::new();
        for hash in 0..(5 * 4 * 100) {
            *seen.entry(Hand::deal(hash, 5, 2).iter().collect::<Vec<_>>()).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 20);
        assert!(seen.values().all(|n| *n == 100), "{seen:?}");
    }

    #[test]
    fn entropy_is_limited_as_upstream() {
        assert!(entropy_bits(128, 6) <= MAX_ENTROPY_BITS);
        assert!(entropy_bits(512, 8) > MAX_ENTROPY_BITS);
    }
}
