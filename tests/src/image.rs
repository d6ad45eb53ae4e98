//! Images made by hand.
