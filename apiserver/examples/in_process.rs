//! A Kubernetes API without sockets, with a client of it: `cargo run -p apiserver --example in_process`.

use std::sync::Arc;

use apiserver::authn::identity::{Identity, User};
use apiserver::clusters::bootstrap::{self, BootstrapOptions, BootstrapStore};
use apiserver::controllers::Controllers;
use apiserver::local;
use apiserver::request::path::Cluster;
use apiserver::stack::Stack;
use controller::tasks::Tasks;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use storage::Store;
use storage::memory::Memory;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    let options = BootstrapOptions { authority: "no certificate", address: ([127, 0, 0, 1], 6443).into() };
    let store = BootstrapStore::open(memory.clone(), bootstrap::objects(&options)).await?;

    let mut tasks = Tasks::new();
    let controllers = Controllers::new(store.clone(), memory, String::new());
    tasks.spawn("controllers", controllers.run(tasks.stop()));
    let server = Arc::new(Stack::new(store, "127.0.0.1:6443".to_owned(), tasks.stop()));

    let groups = vec!["system:masters".to_owned()];
    let admin = Identity::known(User { name: "admin".to_owned(), groups, ..User::default() });
    let client = local::client(server, admin, &Cluster::Bare);

    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("paint".to_owned()), ..ObjectMeta::default() },
        data: Some([("color".to_owned(), "red".to_owned())].into()),
        ..ConfigMap::default()
    };
    let created = Api::default_namespaced(client.clone()).create(&PostParams::default(), &map).await?;
    println!("created a ConfigMap at resourceVersion {:?}", created.metadata.resource_version);
    let namespaces = Api::<Namespace>::all(client).list(&ListParams::default()).await?;
    println!(
        "namespaces: {:?}",
        namespaces.items.iter().filter_map(|one| one.metadata.name.as_deref()).collect::<Vec<_>>()
    );
    Ok(())
}
