use std::sync::{Arc, Mutex};

use super::*;
use crate::fake_server;
use crate::kind::ResourceKind;

/// Requests and responses, in order. After the end of the script the server is unavailable.
type Script = &'static [(&'static str, u16, &'static str)];

/// Plays a script and returns the news as text, and the view.
async fn play(script: Script, scope: Scope) -> (Vec<String>, Arc<View>) {
    let place = Arc::new(Mutex::new(0));
    let remote = fake_server::remote(move |_, path, _| {
        let mut place = place.lock().unwrap();
        let Some((expected, code, answer)) = script.get(*place) else { return (503, String::new()) };
        *place += 1;
        assert!(path.contains(expected), "{path} is not {expected}");
        (*code, (*answer).to_owned())
    });
    let view = Arc::new(View::new(ResourceKind::new("", "v1", "configmaps", "ConfigMap", true)));
    let news_log = Mutex::new(Vec::new());
    let note = |_: &View, news: News| {
        let line = match news {
            News::Put { now, new } => format!("{}{}@{}", if new { "+" } else { "~" }, now.key, now.version),
            News::Gone { last, witnessed } => format!("-{}{}", last.key, if witnessed { "" } else { "?" }),
            News::Synced => "synced".to_owned(),
            News::Lost => "lost".to_owned(),
        };
        news_log.lock().unwrap().push(line);
    };
    let _ = timeout(Duration::from_secs(60), follow(remote, view.clone(), scope, note)).await;
    (news_log.into_inner().unwrap(), view)
}

const EMPTY: &str = r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#;

#[tokio::test(start_paused = true)]
async fn it_lists_by_pages_then_watches_and_resumes_from_the_last_version() {
    let script: Script = &[
        (
            "/api/v1/configmaps?limit=500",
            200,
            r#"{"metadata":{"resourceVersion":"5","continue":"a&b"},"items":[{"metadata":{"namespace":"n","name":"a","resourceVersion":"3"}}]}"#,
        ),
        (
            "continue=a%26b",
            200,
            r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"namespace":"n","name":"b","resourceVersion":"4"}}]}"#,
        ),
        (
            "resourceVersion=5",
            200,
            concat!(
                r#"{"type":"MODIFIED","object":{"metadata":{"namespace":"n","name":"a","resourceVersion":"6"}}}"#,
                "\n",
                r#"{"type":"DELETED","object":{"metadata":{"namespace":"n","name":"b","resourceVersion":"7"}}}"#,
                "\n",
                r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#,
                "\n",
                r#"{"type":"ADDED","obj"#,
            ),
        ),
        (
            "resourceVersion=9",
            200,
            "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"c\",\"resourceVersion\":\"10\"}}}\n",
        ),
    ];
    let (news_log, view) = play(script, Scope::default()).await;
    assert_eq!(news_log, ["+n/a@3", "+n/b@4", "synced", "~n/a@6", "-n/b", "+c@10", "lost"]);
    assert_eq!(view.keys(), [Key::new("", "c"), Key::new("n", "a")]);
    assert_eq!(view.keys_in("n"), [Key::new("n", "a")]);
    assert!(view.has_observed(9) && view.has_observed(10) && !view.has_observed(11));
    assert!(!view.synced() && view.error().is_some());
    assert_eq!(view.get(&Key::new("n", "a")).unwrap().read(&view.kind)["kind"], "ConfigMap");
}

#[tokio::test(start_paused = true)]
async fn an_object_missing_from_a_later_list_is_gone_unwitnessed() {
    let script: Script = &[
        (
            "limit",
            200,
            r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a","resourceVersion":"3"}},{"metadata":{"name":"b","resourceVersion":"4"}}]}"#,
        ),
        (
            "watch=true",
            410,
            r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old","status":"Failure"}"#,
        ),
        (
            "limit",
            200,
            r#"{"metadata":{"resourceVersion":"8"},"items":[{"metadata":{"name":"b","resourceVersion":"4"}}]}"#,
        ),
        (
            "resourceVersion=8",
            200,
            concat!(
                "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"8\"}}}\n",
                "{\"type\":\"ERROR\",\"object\":{\"code\":410,\"reason\":\"Expired\"}}\n",
            ),
        ),
        ("limit", 200, r#"{"metadata":{"resourceVersion":"9"},"items":null}"#),
    ];
    let (news_log, view) = play(script, Scope::default()).await;
    assert_eq!(news_log, ["+a@3", "+b@4", "synced", "-a?", "-b?", "lost"]);
    assert!(view.is_empty());
}

#[tokio::test(start_paused = true)]
async fn errors_and_invalid_responses_do_not_change_the_view() {
    let listed =
        r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a","resourceVersion":"3"}}]}"#;
    for (code, answer) in
        [(401, ""), (403, ""), (500, ""), (429, ""), (200, "{"), (200, "<html>"), (200, EMPTY)]
    {
        let script: Script =
            Box::leak(Box::new([("limit", 200, listed), ("watch=true", 403, ""), ("limit", code, answer)]));
        let (news_log, view) = play(script, Scope::default()).await;
        let known = if answer == EMPTY { 0 } else { 1 };
        assert_eq!((view.len(), view.synced()), (known, false), "{code} {answer}: {news_log:?}");
        assert_eq!(news_log[..3], ["+a@3", "synced", "lost"]);
    }
}

#[tokio::test(start_paused = true)]
async fn only_kept_objects_are_stored_and_keys_name_their_logical_cluster() {
    let script: Script = &[(
        "labelSelector=holon.dev%2Fplaced%3Dtrue",
        200,
        r#"{"metadata":{"resourceVersion":"5"},"items":[
            {"metadata":{"name":"a","resourceVersion":"3","annotations":{"holon.dev/logical-cluster":"~bbbbbbbbbbbbbbbc"}}},
            {"metadata":{"name":"a","resourceVersion":"4","annotations":{"holon.dev/logical-cluster":"~bbbbbbbbbbbbbbbd"}}},
            {"metadata":{"name":"b","resourceVersion":"4"}}]}"#,
    )];
    let labels = "holon.dev/placed=true".to_owned();
    let scope =
        Scope { labels, across: true, keep: Some(Box::new(|key| key.name == "a")), ..Scope::default() };
    let (news_log, _) = play(script, scope).await;
    assert_eq!(news_log, ["+~bbbbbbbbbbbbbbbc/a@3", "+~bbbbbbbbbbbbbbbd/a@4", "synced", "lost"]);
}

/// A client with rights in one namespace lists only that one, and reports when even that is forbidden.
#[tokio::test(start_paused = true)]
async fn one_namespace_is_watched_alone_and_forbidden_is_reported_once() {
    let script: Script = &[
        ("/namespaces/shop/configmaps?limit=", 403, r#"{"kind":"Status","code":403,"message":"not you"}"#),
        ("/namespaces/shop/configmaps?limit=", 403, r#"{"kind":"Status","code":403,"message":"not you"}"#),
        ("/namespaces/shop/configmaps?limit=", 200, r#"{"metadata":{"resourceVersion":"3"},"items":[]}"#),
        ("/namespaces/shop/configmaps?watch=", 403, r#"{"kind":"Status","code":403,"message":"not you"}"#),
    ];
    let scope = Scope { namespace: "shop".to_owned(), ..Scope::default() };
    let (news_log, view) = play(script, scope).await;
    // A refusal is reported once even if it repeats; the last news is the end of the script, another reason.
    assert_eq!(news_log, ["lost", "synced", "lost", "lost"]);
    assert!(view.forbidden().is_none() && view.error().is_some());
}

/// A server that was restored from an older backup, or another one behind the same address, has not come as far as we
/// were told. A watch from there got no events until the server had reached it.
#[tokio::test(start_paused = true)]
async fn a_server_behind_the_last_version_is_listed_again() {
    let script: Script = &[
        (
            "limit",
            200,
            r#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a","resourceVersion":"8"}}]}"#,
        ),
        (
            "resourceVersion=9",
            504,
            r#"{"kind":"Status","code":504,"reason":"Timeout","status":"Failure","message":"Timeout: Too large resource version: 9, current: 5","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]}}"#,
        ),
        (
            "limit",
            200,
            r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"b","resourceVersion":"4"}}]}"#,
        ),
        (
            "resourceVersion=5",
            200,
            "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"c\",\"resourceVersion\":\"6\"}}}\n",
        ),
    ];
    let (news_log, _) = play(script, Scope::default()).await;
    assert_eq!(news_log, ["+a@8", "synced", "lost", "+b@4", "-a?", "synced", "+c@6", "lost"]);
}

/// After other timeouts the version is still valid, and the watch continues from it.
#[tokio::test(start_paused = true)]
async fn after_any_other_timeout_it_resumes_from_the_last_version() {
    let script: Script = &[
        ("limit", 200, EMPTY),
        ("resourceVersion=1", 504, r#"{"kind":"Status","code":504,"reason":"Timeout","message":"slow"}"#),
        ("resourceVersion=1", 504, ""),
        (
            "resourceVersion=1",
            200,
            "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"2\"}}}\n",
        ),
        ("resourceVersion=2", 503, ""),
    ];
    let (news_log, _) = play(script, Scope::default()).await;
    assert_eq!(news_log, ["synced", "lost", "synced", "lost"]);
}

/// A proxy that ends every response at once, and a server that has compacted every version, were called in a busy loop.
#[tokio::test(start_paused = true)]
async fn a_server_that_ends_every_watch_at_once_is_called_with_back_off() {
    let expired = r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old"}"#;
    let expired_event = "{\"type\":\"ERROR\",\"object\":{\"code\":410,\"reason\":\"Expired\"}}\n";
    for (code, answer) in [(200, ""), (410, expired), (200, expired_event)] {
        let calls = Arc::new(Mutex::new(0));
        let count = calls.clone();
        let remote = fake_server::remote(move |_, path, _| {
            let mut count = count.lock().unwrap();
            *count += 1;
            assert!(*count < 1000, "the server is called without a pause");
            match path.contains("watch=true") {
                true => (code, answer.to_owned()),
                false => (200, EMPTY.to_owned()),
            }
        });
        let view = Arc::new(View::new(ResourceKind::new("", "v1", "configmaps", "ConfigMap", true)));
        let following = follow(remote, view.clone(), Scope::default(), |_, _| ());
        let _ = timeout(Duration::from_secs(600), following).await;
        let calls = *calls.lock().unwrap();
        // Every fifteen seconds in the end, by a list and a watch.
        assert!((40..=200).contains(&calls), "{code} {answer}: {calls} times in ten minutes");
        assert!(view.error().is_some(), "{code} {answer}");
    }
}
