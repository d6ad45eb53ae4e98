use super::*;
use crate::iptables::rules::tests::port;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// An entrance whose endpoint says back what it is told.
async fn echoing(room: Room) -> SocketAddr {
    let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut to = port(&[("127.0.0.1", true)]);
    to.endpoints[0].port = endpoint.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = endpoint.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut read, mut write) = client.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    let balancer = Arc::new(Balancer::default());
    balancer.set(&to);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(tcp(listener, Door { room, balancer, local: false, guarded: false, networks: Vec::new() }));
    at
}

/// Whether somebody answers.
async fn answers(client: &mut TcpStream) -> bool {
    let mut answer = [0; 4];
    client.write_all(b"ping").await.is_ok() && client.read_exact(&mut answer).await.is_ok()
}

#[tokio::test]
async fn more_than_there_is_room_for_are_turned_away_and_nobody_else() {
    let room = Room::of(5);
    let at = echoing(room.clone()).await;
    let (mut one, mut two) = (TcpStream::connect(at).await.unwrap(), TcpStream::connect(at).await.unwrap());
    assert!(answers(&mut one).await && answers(&mut two).await);
    let mut three = TcpStream::connect(at).await.unwrap();
    assert!(!answers(&mut three).await && room.told.load(Ordering::Relaxed));
    assert!(answers(&mut one).await && answers(&mut two).await, "who is there goes on");
    drop(one);
    // Its place is free when both its ends are closed.
    let free = room.left.clone().acquire_many_owned(3).await.unwrap();
    drop(free);
    let mut four = TcpStream::connect(at).await.unwrap();
    assert!(answers(&mut four).await);
}

#[tokio::test(start_paused = true)]
async fn a_connection_on_which_nothing_moves_is_ended() {
    let began = tokio::time::Instant::now();
    let ((mut client, near), (mut far, mut endpoint)) = (tokio::io::duplex(64), tokio::io::duplex(64));
    let talk = async {
        tokio::time::sleep(TCP_IDLE_TIMEOUT - Duration::from_secs(1)).await;
        endpoint.write_all(b"x").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'x');
    };
    tokio::join!(between(near, &mut far), talk);
    assert_eq!(began.elapsed(), TCP_IDLE_TIMEOUT * 2 - Duration::from_secs(1));
}
