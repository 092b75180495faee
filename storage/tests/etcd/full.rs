//! An etcd whose database is full.

use etcd_client::{AlarmAction, AlarmOptions, AlarmType};
use storage::{Change, CommitError, Expect, Key, Page, Range, Revision, Store};

use crate::peer::Etcd as Peer;
use crate::{connect, create, delete, eventually, options, text_of};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_full_etcd_is_read_only_until_it_is_compacted_defragmented_and_disarmed() {
    let flags = ["--quota-backend-bytes", "4194304", "--unsafe-no-fsync"];
    let etcd = Peer::start_with("etcd", 1, "http", &flags).await;
    let server = connect(options(etcd.endpoints())).await;
    create(&server, "small", "1").await;
    let mut last = create(&server, "large", "0").await;
    let refused = loop {
        let (expect, large) = (Expect::Revision(last.revision), Change::Put(vec![7; 200_000].into()));
        match server.commit(last.key.clone(), expect, large).await {
            Ok(event) => last = event,
            Err(error) => break error,
        }
    };
    let CommitError::ReadOnly { reason } = refused else { panic!("{refused}") };
    assert!(reason.contains("NOSPACE") && reason.contains("alarm disarm"), "{reason}");
    // Reads continue.
    assert_eq!(text_of(&server, "small").await.as_deref(), Some("1"));
    assert_eq!(server.list(Range::all(), Page::default()).await.unwrap().value.entries.len(), 2);
    let error = server.commit(Key::from("new"), Expect::Absent, Change::Put("1".into())).await.unwrap_err();
    assert!(matches!(error, CommitError::ReadOnly { .. }), "{error}");

    // A write that was reported as rejected has not happened, and one that happened was reported as done: etcd executes
    // the write that fills it up, although it answers that one with the same error.
    let found = server.get(&last.key).await.unwrap().value;
    assert_eq!(found.map(|entry| entry.revision()), Some(last.revision));
    // A server can be started meanwhile.
    let second = connect(options(etcd.endpoints())).await;
    assert_eq!(text_of(&second, "small").await.as_deref(), Some("1"));

    server.compact(Revision(u64::MAX)).await.unwrap();
    let mut client = etcd.client(0).await.unwrap();
    let mut alarmed = AlarmOptions::new();
    alarmed.with_member(client.status().await.unwrap().header().unwrap().member_id());
    eventually("writes work again", async || {
        // Compaction continues after it is acknowledged, so the first attempt may free too little.
        client.defragment().await.unwrap();
        client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(alarmed.clone())).await.unwrap();
        let put = Change::Put("1".into());
        server.commit(Key::from("new"), Expect::Absent, put).await.is_ok()
    })
    .await;
    delete(&server, &last).await;
    assert_eq!(text_of(&server, "large").await, None);
}
