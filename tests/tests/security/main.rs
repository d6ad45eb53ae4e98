//! Attacks, carried out against the real binary.

mod load;
