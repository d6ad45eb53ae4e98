//! The sandbox image: one static program of a few instructions that sleeps, reaps what is left to it, and ends on
//! SIGTERM, packed as an image archive in memory. A box without a network needs no other image to start.

use sha2::{Digest, Sha256};

/// Where the program lies in memory and in the file: one page, header included.
const BASE: u64 = 0x40_0000;
const HEADERS: u64 = 64 + 56;

/// The program for x86_64.
///
/// A process with number 1 ignores signals that it has no handler for, so SIGTERM and SIGINT are blocked and taken
/// synchronously: `rt_sigprocmask(BLOCK, {INT, TERM, CHLD})`, then for ever `rt_sigtimedwait`; on SIGCHLD all zombies
/// are reaped (`wait4(-1, 0, WNOHANG)`), on the others `exit_group(0)`.
#[rustfmt::skip]
const X86_64: &[u8] = &[
    // The signal set: bits 1 (INT), 14 (TERM), 16 (CHLD), pushed as 8 bytes.
    0x68, 0x02, 0x40, 0x01, 0x00,             // push 0x14002
    0x48, 0x89, 0xe6,                         // mov rsi, rsp
    0x31, 0xff,                               // xor edi, edi            SIG_BLOCK
    0x31, 0xd2,                               // xor edx, edx
    0x6a, 0x08, 0x41, 0x5a,                   // push 8; pop r10         size of the set
    0x6a, 0x0e, 0x58,                         // push 14; pop rax        rt_sigprocmask
    0x0f, 0x05,                               // syscall
    // wait:
    0x48, 0x89, 0xe7,                         // mov rdi, rsp
    0x31, 0xf6,                               // xor esi, esi            no siginfo
    0x31, 0xd2,                               // xor edx, edx            no timeout
    0x6a, 0x08, 0x41, 0x5a,                   // push 8; pop r10
    0xb8, 0x80, 0x00, 0x00, 0x00,             // mov eax, 128            rt_sigtimedwait
    0x0f, 0x05,                               // syscall
    0x83, 0xf8, 0x11,                         // cmp eax, 17             SIGCHLD
    0x74, 0x10,                               // je reap
    0x83, 0xf8, 0x00,                         // cmp eax, 0
    0x7c, 0xe4,                               // jl wait                 EINTR
    0x31, 0xff,                               // xor edi, edi
    0xb8, 0xe7, 0x00, 0x00, 0x00,             // mov eax, 231            exit_group
    0x0f, 0x05,                               // syscall
    0x90, 0x90,                               // nop
    // reap:
    0x6a, 0xff, 0x5f,                         // push -1; pop rdi
    0x31, 0xf6,                               // xor esi, esi
    0x6a, 0x01, 0x5a,                         // push 1; pop rdx         WNOHANG
    0x4d, 0x31, 0xd2,                         // xor r10, r10
    0x6a, 0x3d, 0x58,                         // push 61; pop rax        wait4
    0x0f, 0x05,                               // syscall
    0x85, 0xc0,                               // test eax, eax
    0x7f, 0xec,                               // jg reap
    0xeb, 0xc3,                               // jmp wait
];

/// The same for aarch64, as little-endian words.
#[rustfmt::skip]
const AARCH64: &[u32] = &[
    0xd100_43ff,                              // sub sp, sp, #16
    0xd288_0040,                              // mov x0, #0x4002
    0xf2a0_0020,                              // movk x0, #1, lsl #16
    0xf900_03e0,                              // str x0, [sp]
    0xd280_0000,                              // mov x0, #0              SIG_BLOCK
    0x9100_03e1,                              // mov x1, sp
    0xd280_0002,                              // mov x2, #0
    0xd280_0103,                              // mov x3, #8
    0xd280_10e8,                              // mov x8, #135            rt_sigprocmask
    0xd400_0001,                              // svc #0
    // wait (word 10):
    0x9100_03e0,                              // mov x0, sp
    0xd280_0001,                              // mov x1, #0
    0xd280_0002,                              // mov x2, #0
    0xd280_0103,                              // mov x3, #8
    0xd280_1128,                              // mov x8, #137            rt_sigtimedwait
    0xd400_0001,                              // svc #0
    0xf100_441f,                              // cmp x0, #17             SIGCHLD
    0x5400_00c0,                              // b.eq +6                 reap
    0xf100_001f,                              // cmp x0, #0
    0x54ff_feeb,                              // b.lt -9                 wait
    0xd280_0000,                              // mov x0, #0
    0xd280_0bc8,                              // mov x8, #94             exit_group
    0xd400_0001,                              // svc #0
    // reap (word 23):
    0x9280_0000,                              // mov x0, #-1
    0xd280_0001,                              // mov x1, #0
    0xd280_0022,                              // mov x2, #1              WNOHANG
    0xd280_0003,                              // mov x3, #0
    0xd280_2088,                              // mov x8, #260            wait4
    0xd400_0001,                              // svc #0
    0xf100_001f,                              // cmp x0, #0
    0x54ff_ff2c,                              // b.gt -7                 reap
    0x17ff_ffeb,                              // b -21                   wait
];

/// A static ELF executable around the program of this machine; `None` on other architectures.
fn elf(arch: &str) -> Option<Vec<u8>> {
    let (machine, code): (u16, Vec<u8>) = match arch {
        "x86_64" => (62, X86_64.to_vec()),
        "aarch64" => (183, AARCH64.iter().flat_map(|word| word.to_le_bytes()).collect()),
        _ => return None,
    };
    let size = HEADERS + u64::try_from(code.len()).ok()?;
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for half in [2_u16, machine] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    // Entry, program header, no section headers.
    for word in [BASE + HEADERS, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // One loadable segment, readable and executable.
    file.extend(1_u32.to_le_bytes());
    file.extend(5_u32.to_le_bytes());
    for word in [0, BASE, BASE, size, size, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend(code);
    Some(file)
}

/// One entry of a tar archive (POSIX ustar).
fn tar_entry(archive: &mut Vec<u8>, name: &str, mode: u32, data: &[u8]) {
    let mut header = [0_u8; 512];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, &format!("{mode:07o}"));
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{:011o}", data.len()));
    put(136, "00000000000");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar");
    put(263, "00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    archive.extend(header);
    archive.extend(data);
    archive.resize(archive.len().next_multiple_of(512), 0);
}

fn tar(entries: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, mode, data) in entries {
        tar_entry(&mut archive, name, *mode, data);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

fn sha256(data: &[u8]) -> String {
    coracle_api::hex::text(&Sha256::digest(data))
}

/// The image as `docker save` would write it, tagged `name`; `None` on architectures that have no program here.
pub fn archive(name: &str, arch: &str) -> Option<Vec<u8>> {
    let layer = tar(&[("pause", 0o755, &elf(arch)?)]);
    let go_arch = match arch {
        "x86_64" => "amd64",
        _ => "arm64",
    };
    let config = serde_json::json!({
        "architecture": go_arch, "os": "linux",
        "config": { "Entrypoint": ["/pause"], "User": "65535:65535" },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(&layer))] },
    })
    .to_string();
    let config_name = format!("{}.json", sha256(config.as_bytes()));
    let manifest =
        serde_json::json!([{ "Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"] }]);
    Some(tar(&[
        ("layer.tar", 0o644, &layer),
        (&config_name, 0o644, config.as_bytes()),
        ("manifest.json", 0o644, manifest.to_string().as_bytes()),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn the_program_waits_and_ends_on_sigterm() {
        let Some(program) = elf(std::env::consts::ARCH) else { return };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pause");
        std::fs::write(&path, program).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = std::process::Command::new(&path).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let status = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        // It sleeps nowhere but where it waits for signals; before that, one would kill it.
        let waits = || status().contains("Name:\tpause") && status().contains("State:\tS");
        within("it waits", waits, &status);
        kill(pid, Signal::SIGCHLD).unwrap();
        kill(pid, Signal::SIGTERM).unwrap();
        let mut exit = None;
        within(
            "it ends",
            || {
                exit = child.try_wait().unwrap();
                exit.is_some()
            },
            &status,
        );
        let exit = exit.unwrap();
        assert_eq!((exit.code(), exit.signal()), (Some(0), None));
    }

    fn within(what: &str, mut holds: impl FnMut() -> bool, last: &dyn Fn() -> String) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !holds() {
            assert!(std::time::Instant::now() < deadline, "{what} did not come true: {}", last());
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    #[test]
    fn the_archive_is_a_docker_archive() {
        let archive = archive("coracle.local/pause:1", "aarch64").unwrap();
        assert_eq!(archive.len() % 512, 0);
        assert!(archive.windows(13).any(|w| w == b"manifest.json"));
        assert!(super::archive("x", "riscv64").is_none());
    }
}
