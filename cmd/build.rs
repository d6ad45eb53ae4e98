//! Asks the linker for a smaller binary: to fold functions that compiled to the same bytes (generic code makes many) and
//! to pack the addresses that the loader moves. Only rust-lld, which rustc takes on x86-64 Linux unless it is told
//! otherwise, is known to understand both, and the loader understands the second since glibc 2.36.

use std::env::var;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| var(name).is_ok_and(|v| v == value);
    let platform = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ARCH", "x86_64");
    let usual =
        var("RUSTC_LINKER").is_err() && var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.is_empty());
    if !(platform && usual && is("CARGO_CFG_TARGET_ENV", "gnu") && is("PROFILE", "release")) {
        return;
    }
    println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    if var("HOST") == var("TARGET") && glibc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this machine's C library: `getconf` says "glibc 2.36".
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}
