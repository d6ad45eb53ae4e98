//! The normalization that several plugins share.

use crate::framework::{MAX_NODE_SCORE, NodeScore};

/// Scales scores so that the highest is [`MAX_NODE_SCORE`]; `reverse` makes the lowest raw score the best.
pub fn by_highest(scores: &mut [NodeScore], reverse: bool) {
    let highest = scores.iter().map(|s| s.score).max().unwrap_or(0);
    for scored in scores {
        let scaled = if highest == 0 { 0 } else { scored.score * MAX_NODE_SCORE / highest };
        scored.score = if reverse { MAX_NODE_SCORE - scaled } else { scaled };
    }
}
