//! What somebody who should not get in tries, against the real binary: each test carries an attack out and sees it fail.

mod certificates;
