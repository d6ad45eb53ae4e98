//! Attacks, carried out as an attacker would, against the real binary. Needs kubectl and curl, and no root.

mod encryption;
