//! What `scripts/release` packs, taken apart as whoever gets it would: with tar, dpkg, skopeo and ssh-keygen.
//!
//! A small program stands in for the binary, so that packing takes a second; it asks the real one for its pages.

use coracle_tests::Shell;
use std::path::Path;
use tempfile::TempDir;

/// A terminal in the repository's root, with `$OUT` for what is made and `$ONE` for the program to pack.
struct Desk {
    home: TempDir,
    shell: Shell,
}

impl Desk {
    fn new() -> Self {
        let home = TempDir::new().expect("a directory");
        let shell = Shell::new(home.path(), &home.path().join("none"));
        let desk = Self { home, shell };
        let real = coracle_tests::coracle();
        let program = format!("#!/bin/sh\nexec {} \"$@\"\n", real.display());
        std::fs::write(desk.at("one"), program).expect("a program");
        desk.ok("chmod 755 $HOME/one && ssh-keygen -q -t ed25519 -N '' -f $HOME/key");
        desk
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.home.path().join(name)
    }

    #[track_caller]
    fn ok(&self, line: &str) -> String {
        self.shell.ok(line)
    }

    /// Packs for one architecture, and signs; the folder's name is in the home directory.
    #[track_caller]
    fn release(&self, architecture: &str, folder: &str) {
        let root = coracle_tests::repository();
        self.ok(&format!(
            "cd {} && SOURCE_DATE_EPOCH=1700000000 CORACLE_BIN=$HOME/one CORACLE_DIST=$HOME/{folder} \
             CORACLE_SIGNING_KEY=$HOME/key scripts/release {architecture}",
            root.display()
        ));
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_same_is_packed_into_the_same_bytes() {
    let desk = Desk::new();
    desk.release("arm64", "first");
    // Who packs, and when, is not in it.
    desk.ok("umask 077 && touch $HOME/one");
    desk.release("arm64", "second");
    let [first, second] = ["first", "second"].map(|folder| read(&desk.at(folder).join("SHA256SUMS")));
    assert_eq!(first, second);
    assert_eq!(first.lines().count(), 3, "archive, package, image:\n{first}");
}

#[test]
fn the_sums_are_signed_and_a_changed_archive_is_noticed() {
    let desk = Desk::new();
    desk.release("amd64", "out");
    desk.ok("echo \"coracle $(cat $HOME/key.pub)\" > $HOME/signers");
    let verify = "cd $HOME/out && sha256sum -c --quiet SHA256SUMS && \
                  ssh-keygen -q -Y verify -f $HOME/signers -I coracle -n coracle -s SHA256SUMS.sig < SHA256SUMS";
    desk.ok(verify);
    desk.ok("for file in $HOME/out/*.tar.gz; do echo x >> $file; done");
    let told = desk.shell.run(verify);
    assert!(told.code != 0 && told.stderr.contains("did NOT match"), "{told}");
    desk.ok("cd $HOME/out && sha256sum *.tar.gz *.deb *.oci.tar > SHA256SUMS");
    let told = desk.shell.run(verify);
    assert!(told.code != 0 && told.to_string().contains("incorrect signature"), "{told}");
}

#[test]
fn the_archive_holds_an_installer_that_runs_from_any_folder() {
    let desk = Desk::new();
    desk.release("amd64", "out");
    desk.ok("mkdir -p \"$HOME/a stick\" && tar -C \"$HOME/a stick\" -xzf $HOME/out/*.tar.gz");
    let help = desk.ok("cd / && \"$HOME\"/a\\ stick/*/install --help");
    assert!(help.contains("takes everything away again"), "{help}");
    let version = desk.ok("\"$HOME\"/a\\ stick/*/coracle --version");
    assert!(version.starts_with("coracle "), "{version}");
    let page = desk.ok("zcat -f \"$HOME\"/a\\ stick/*/man/coracle-server.1");
    assert!(page.contains(".TH"), "{page}");
    // Every file as anybody may read it, and nobody but root write it.
    let listed = desk.ok("tar -tvzf $HOME/out/*.tar.gz");
    assert!(listed.lines().all(|line| line.contains(" 0/0 ")), "{listed}");
}

#[test]
fn the_package_says_what_it_needs_and_unpacks_where_packages_do() {
    let desk = Desk::new();
    desk.release("armhf", "out");
    let told = desk.ok("dpkg-deb -f $HOME/out/*.deb Package Architecture Depends");
    assert!(told.contains("Package: coracle") && told.contains("Architecture: armhf"), "{told}");
    assert!(told.contains("containerd") && told.contains("nftables"), "{told}");
    desk.ok("dpkg-deb -x $HOME/out/*.deb $HOME/root && bash -n $HOME/root/usr/share/bash-completion/completions/coracle");
    desk.ok("dpkg-deb -e $HOME/out/*.deb $HOME/control && sh -n $HOME/control/postinst && sh -n $HOME/control/prerm");
    let help = desk.ok("grep -q CORACLE_PACKAGED=1 $HOME/root/usr/sbin/coracle-up && cd $HOME/root/usr/share/coracle && scripts/up -h");
    assert!(help.contains("scripts/up"), "{help}");
}

#[test]
fn the_image_holds_the_binary_and_runs_it() {
    let desk = Desk::new();
    desk.release("arm64", "out");
    let inspected = desk.ok("skopeo inspect oci-archive:$(ls $HOME/out/*.oci.tar)");
    assert!(inspected.contains("\"Architecture\": \"arm64\""), "{inspected}");
    let config = desk.ok("skopeo inspect --config oci-archive:$(ls $HOME/out/*.oci.tar)");
    assert!(config.contains("/usr/bin/coracle"), "{config}");
    // Tools that check every sum take it, and find the program in it.
    desk.ok("skopeo copy -q oci-archive:$(ls $HOME/out/*.oci.tar) dir:$HOME/image");
    let found = desk.ok("cd $HOME/image && for blob in *; do tar -tzf $blob 2>/dev/null || true; done");
    assert!(found.contains("./usr/bin/coracle"), "{found}");
}

#[test]
fn what_cannot_be_packed_is_said() {
    let desk = Desk::new();
    let root = coracle_tests::repository();
    let release = |line: &str| desk.shell.run(&format!("cd {} && {line}", root.display()));
    let told = release("CORACLE_BIN=$HOME/one CORACLE_DIST=$HOME/out scripts/release amd64 arm64");
    assert!(told.code != 0 && told.stderr.contains("name it alone"), "{told}");
    let told = release("CORACLE_DIST=$HOME/out scripts/release sparc");
    assert!(told.code != 0 && told.stderr.contains("amd64|arm64|armhf"), "{told}");
    let told = release(
        "CORACLE_SIGNING_KEY=/nowhere CORACLE_BIN=$HOME/one CORACLE_DIST=$HOME/out scripts/release amd64",
    );
    assert!(told.code != 0 && told.stderr.contains("could not be signed"), "{told}");
    assert!(!desk.at("out/SHA256SUMS.sig").exists());
}
