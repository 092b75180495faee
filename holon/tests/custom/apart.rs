//! Custom kinds where Holon differs from Kubernetes: different kinds of one name, a restarted server, two servers.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::life::NOT_SERVED;
use super::manifests::{WIDGETS, plain, widget};
use crate::common::HOLON;

use testkit::{Kubectl, Server};

fn define(k: &Kubectl, manifest: &str) {
    k.with(&["create"], manifest, "created");
    k.says(
        &["wait", "--for=condition=established", "crd/widgets.shop.example", "--timeout=10s"],
        "condition met",
    );
    k.finish();
}

#[test]
#[ignore = "needs kubectl"]
fn one_plural_names_a_different_kind_in_each_logical_cluster() {
    let program = testkit::peers::program("kubectl");
    let server = Server::start(HOLON);
    let (a, b) = (Kubectl::at(&server, &program, "root:a"), Kubectl::at(&server, &program, "root:b"));
    define(&a, &plain("widgets", "Widget", "{size: {type: integer}}"));
    define(&b, &plain("widgets", "Wish", "{wanted: {type: string}}"));
    let root = Kubectl::at(&server, &program, "root");
    root.fails(&["get", "widgets"], "the server doesn't have a resource type \"widgets\"");
    let all = "/clusters/*/apis/shop.example/v1/widgets";
    let path = format!("{all}?watch=1&timeoutSeconds=30");
    let mut watch = root.command(&["get", "--server", &server.url, "--raw", &path]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    a.with(&["create"], &widget("x", 1), "created");
    let wish = "apiVersion: shop.example/v1\nkind: Wish\nmetadata: {name: x}\nspec: {wanted: peace}\n";
    b.with(&["create"], wish, "wish.shop.example/x created");
    a.fails(&["create", "-f", &a.file("wish.yaml", wish)], "no matches for kind \"Wish\"");
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
    let events: Vec<String> = lines.take(2).collect();
    let _ = watch.kill();
    let _ = watch.wait();
    for (kind, spec) in [("Widget", "\"size\":1"), ("Wish", "\"wanted\":\"peace\"")] {
        let is_event = |line: &&String| line.contains(&format!("\"kind\":\"{kind}\"")) && line.contains(spec);
        assert!(events.iter().any(|line| is_event(&line)), "{events:#?}");
        root.says(&["get", "--server", &server.url, "--raw", all], spec);
    }
    [root, a, b].iter().for_each(Kubectl::finish);
}

#[test]
#[ignore = "needs kubectl"]
fn a_restarted_server_serves_existing_definitions() {
    let program = testkit::peers::program("kubectl");
    let mut server = Server::start(HOLON);
    let k = Kubectl::at(&server, &program, "root:a");
    define(&k, WIDGETS);
    k.with(&["create"], &widget("one", 1), "created");
    k.finish();
    server.restart();
    let k = Kubectl::new(&server, &program, "root:a");
    k.prints(&["get", "widget", "one", "-o", "jsonpath={.spec.size}"], "1");
    k.with(&["create"], &widget("two", 2), "created");
    k.says(&["explain", "widget.spec"], "How large it is.");
    k.says(&["delete", "crd", "widgets.shop.example", "--timeout=20s"], "deleted");
    k.finish();
}

#[test]
#[ignore = "needs etcd and kubectl"]
fn definitions_accepted_by_one_server_are_served_by_both() {
    let program = testkit::peers::program("kubectl");
    let etcd = testkit::peers::Etcd::start(testkit::peers::program("etcd"), 1);
    let start = || Server::start_with(HOLON, &["--etcd-endpoints", &etcd.endpoint(0)]);
    let (one, two) = (start(), start());
    let (first, second) = (Kubectl::new(&one, &program, "root"), Kubectl::new(&two, &program, "root"));
    for (writer, reader) in [(&first, &second), (&second, &first)] {
        define(writer, WIDGETS);
        reader.with(&["create"], &widget("one", 1), "created");
        writer.prints(&["get", "widget", "one", "-o", "jsonpath={.spec.color}"], "blue");
        reader.says(&["delete", "crd", "widgets.shop.example", "--timeout=20s"], "deleted");
        writer.fails(&["get", "widgets"], NOT_SERVED);
        reader.finish();
        writer.finish();
    }
}
