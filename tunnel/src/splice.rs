//! Copying bytes between two connections.

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};

/// Copies bytes both ways until either side closes or one of `ends` completes; then drops both sides.
///
/// Each of `ends` is polled by itself: while both sides block on writes, neither side's reads would notice the end.
pub async fn splice(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    mut downstream: impl AsyncRead + AsyncWrite + Unpin,
    ends: (impl Future<Output = ()>, impl Future<Output = ()>),
) {
    tokio::select! {
        // An error means that a side closed; the other side then sees the end of its stream.
        _ = copy_bidirectional(&mut client, &mut downstream) => {}
        () = ends.0 => {}
        () = ends.1 => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::sync::oneshot;

    /// The pod reads nothing and writes nothing, so no read of the client's side is pending, and only such a read noticed that
    /// the client had lost its access.
    #[tokio::test]
    async fn a_client_that_lost_its_access_is_cut_off_from_a_pod_that_does_not_read() {
        let ((mut client, above), (below, mut pod)) = (duplex(16), duplex(16));
        let (revoke, revoked) = oneshot::channel::<()>();
        let spliced = async {
            splice(above, below, (async { _ = revoked.await }, pending())).await;
        };
        let story = async {
            let mut sent = 0;
            while tokio::time::timeout(Duration::from_millis(20), client.write_all(b"more")).await.is_ok() {
                sent += 4;
            }
            assert!(sent > 32);
            drop(revoke);
        };
        tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(spliced, story) })
            .await
            .expect("the stream ends");
        assert!(client.write_all(b"more").await.is_err());
        let mut rest = Vec::new();
        pod.read_to_end(&mut rest).await.unwrap();
        assert!(rest.len() >= 16);
    }
}
