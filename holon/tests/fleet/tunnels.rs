//! Logs and commands on pods of a physical cluster, through the mailbox.

use crate::World;
use crate::common::kubectl::said;

use std::process::Command;

/// kubectl on the mailbox and on the physical cluster itself.
fn both(world: &World, kubectl: &std::path::Path, arguments: &[&str]) -> [(bool, String); 2] {
    let mailbox = world.server.file("mailbox.kubeconfig");
    std::fs::write(&mailbox, world.server.kubeconfig("root:mailbox-east")).unwrap();
    [mailbox, world.server.file("east.kubeconfig")].map(|kubeconfig| {
        let mut command = Command::new(kubectl);
        command.arg("--kubeconfig").arg(kubeconfig).args(["-n", "shop", "--cache-dir"]);
        said(command.arg(world.server.file("cache")).args(arguments))
    })
}

#[test]
fn logs_and_commands_are_those_of_the_physical_cluster() {
    let test = "logs_and_commands_are_those_of_the_physical_cluster";
    let Some(kubectl) = peers::need(test, "kubectl") else { return };
    let world = World::joined();
    world.put_app();
    world.until("three pods are shown", || world.pods().len() == 3);
    let pod = world.pods()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    for arguments in [
        &["logs", &pod][..],
        &["logs", &pod, "--timestamps"],
        &["logs", &pod, "--tail=1", "-c", "web"],
        &["logs", &pod, "-c", "nobody"],
        &["exec", &pod, "--", "echo", "hello"],
        &["exec", &pod, "--", "sh", "-c", "echo hello; exit 3"],
        &["exec", &pod, "-c", "nobody", "--", "echo"],
    ] {
        let [through, direct] = both(&world, &kubectl, arguments);
        assert_eq!(through, direct, "kubectl {arguments:?}");
    }
    let [(worked, hello), _] = both(&world, &kubectl, &["exec", &pod, "--", "echo", "hello"]);
    assert!(worked && hello.contains("hello"), "{hello}");
}

#[test]
fn who_may_not_see_logs_does_not() {
    let world = World::joined();
    world.put_app();
    world.until("three pods are shown", || world.pods().len() == 3);
    let pod = world.pods()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let path = format!("{}{}/{pod}/log", crate::MAILBOX, crate::PODS);
    assert_eq!(world.admin.get(&path).code, 200);
    // Somebody who reaches the mailbox and may read pods, and not what they say.
    world.admin.bind(crate::MAILBOX, "holon:access", "User ann");
    let ann = world.admin.with("Impersonate-User: ann");
    assert_eq!(ann.get(&path).code, 403);
}
