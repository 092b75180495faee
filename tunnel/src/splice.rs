//! Copying bytes between two connections.

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};

/// Copies bytes both ways until either side closes or one of `ends` completes; then drops both sides.
///
/// Both of `ends` are polled independently: while both sides block on writes, a read would not notice the end.
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

    /// Regression: only a read of the client's side noticed that the client had lost its access, and while the pod
    /// neither reads nor writes, no such read is pending.
    #[tokio::test]
    async fn a_client_that_lost_its_access_is_cut_off_from_a_pod_that_does_not_read() {
        let ((mut client, upstream), (downstream, mut pod)) = (duplex(16), duplex(16));
        let (revoke, revoked) = oneshot::channel::<()>();
        let spliced = async {
            splice(upstream, downstream, (async { _ = revoked.await }, pending())).await;
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
