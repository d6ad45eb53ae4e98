use super::*;
use crate::local_path::incoming::in_pieces;
use crate::volumes::LinuxMounter;
use futures::StreamExt;
use std::fs;
use std::io::Read;

fn node(place: &tempfile::TempDir, name: &str) -> NodeVolumes {
    let root = place.path().join(name);
    fs::create_dir(&root).unwrap();
    NodeVolumes::new(root, Arc::new(LinuxMounter))
}

/// Sends a stream as the server does.
async fn write(
    to: &NodeVolumes,
    directory: &str,
    stream: impl Stream<Item = io::Result<Bytes>> + Unpin,
) -> Result<Written, TransferError> {
    let wanted = Wanted { directory: directory.to_owned(), bytes: None, quota: None };
    let attempt = to.begin(wanted);
    let (mut pieces, mut number) = (std::pin::pin!(in_pieces(stream)), 0);
    while let Some(piece) = pieces.next().await {
        to.piece(&attempt, number, piece.unwrap()).await?;
        number += 1;
    }
    to.end(&attempt).await
}

#[tokio::test]
async fn a_volume_goes_from_one_node_to_another() {
    let place = tempfile::tempdir().unwrap();
    let (one, two) = (node(&place, "one"), node(&place, "two"));
    fs::create_dir_all(one.root.join("v/a")).unwrap();
    fs::write(one.root.join("v/a/file"), vec![7; 3 << 20]).unwrap();
    let contents = one.look("v").await.unwrap();
    assert!(contents.files == 2 && contents.bytes >= 3 << 20, "{contents:?}");
    // Half a volume of an attempt that was killed is in nobody's way.
    fs::create_dir(two.root.join(".new-v")).unwrap();
    fs::write(two.root.join(".new-v/half"), "").unwrap();
    let written = write(&two, "v", Box::pin(one.read("v"))).await.unwrap();
    assert_eq!((written.files, written.bytes, written.left_out), (2, 3 << 20, 0));
    assert_eq!(fs::read(two.root.join("v/a/file")).unwrap(), vec![7; 3 << 20]);
    assert_eq!(fs::read_dir(&two.root).unwrap().count(), 1);
    // What an attempt has made whose answer was lost goes.
    fs::write(two.root.join("v/more"), "").unwrap();
    write(&two, "v", Box::pin(one.read("v"))).await.unwrap();
    assert!(!two.root.join("v/more").exists());
    // To another disk of the same node, which has to be there.
    let missing = write(&one, "@big/v", Box::pin(one.read("v"))).await.unwrap_err();
    assert!(missing.to_string().ends_with("@big on this node"), "{missing}");
    fs::create_dir(one.root.join("@big")).unwrap();
    write(&one, "@big/v", Box::pin(one.read("v"))).await.unwrap();
    assert_eq!(fs::read_dir(one.root.join("@big/v/a")).unwrap().count(), 1);
}

#[tokio::test]
async fn what_does_not_come_whole_is_no_volume() {
    let place = tempfile::tempdir().unwrap();
    let (one, two) = (node(&place, "one"), node(&place, "two"));
    fs::create_dir(one.root.join("v")).unwrap();
    fs::write(one.root.join("v/file"), vec![7; 3 << 20]).unwrap();
    let beginning = Box::pin(one.read("v").take(1));
    let cut = write(&two, "v", beginning).await.unwrap_err();
    assert!(matches!(cut, TransferError::Again(_)), "{cut}");
    assert!(!two.root.join("v").exists());
    let nothing = one.look("w").await.unwrap_err();
    assert!(matches!(nothing, TransferError::Refused(_)), "{nothing}");
    // What is there already does not go for an error.
    fs::create_dir(two.root.join("w")).unwrap();
    let unread = write(&two, "w", Box::pin(one.read("w"))).await.unwrap_err();
    assert!(matches!(unread, TransferError::Refused(_)), "{unread}");
    let none = write(&two, "w", futures::stream::empty()).await.unwrap_err();
    assert!(matches!(none, TransferError::Again(_)), "{none}");
    assert!(two.root.join("w").exists());
    for name in ["..", "../v", "v/file"] {
        assert!(matches!(one.look(name).await, Err(TransferError::Refused(_))), "{name}");
    }
}

#[tokio::test]
async fn what_a_container_still_has_is_not_read() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: mounts need root");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let one = node(&place, "one");
    fs::create_dir_all(one.root.join("v/sub")).unwrap();
    let target = place.path().join("inside");
    fs::create_dir(&target).unwrap();
    let script =
        format!("mount --bind {}/v/sub {} && echo ready && cat", one.root.display(), target.display());
    let mut container = std::process::Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", &script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    container.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let refused = one.look("v").await.unwrap_err().to_string();
    assert!(
        refused.contains("still have it mounted") && refused.contains(&container.id().to_string()),
        "{refused}"
    );
    drop(container.stdin.take());
    container.wait().unwrap();
    one.look("v").await.unwrap();
}

#[tokio::test]
async fn whoever_begins_anew_takes_over_and_pieces_come_in_their_order() {
    let place = tempfile::tempdir().unwrap();
    let (one, two) = (node(&place, "one"), node(&place, "two"));
    fs::create_dir(one.root.join("v")).unwrap();
    fs::write(one.root.join("v/file"), vec![7; 3 << 20]).unwrap();
    let lost = two.begin(Wanted { directory: "v".to_owned(), bytes: None, quota: None });
    let first = Box::pin(one.read("v")).next().await.unwrap().unwrap();
    two.piece(&lost, 0, first.clone()).await.unwrap();
    assert!(
        matches!(two.piece(&lost, 0, first.clone()).await, Err(TransferError::Again(_))),
        "it came already"
    );
    write(&two, "v", Box::pin(one.read("v"))).await.unwrap();
    assert!(matches!(two.piece(&lost, 1, first).await, Err(TransferError::Again(_))));
    assert!(matches!(two.end(&lost).await, Err(TransferError::Again(_))));
    assert_eq!(fs::read(two.root.join("v/file")).unwrap(), vec![7; 3 << 20]);
}
