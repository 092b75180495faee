use storage::memory::Memory;
use storage::{Change, Expect};

use super::*;

struct TestAccounts {
    store: Arc<dyn Store>,
    accounts: Accounts,
}

const HOME: u64 = 1;

impl TestAccounts {
    async fn new() -> TestAccounts {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let test = TestAccounts { accounts: Accounts::new(store.clone(), "https://here".to_owned()), store };
        test.put(ACCOUNTS, "bot", "u1").await;
        test.put(SECRETS, "key", "u2").await;
        test
    }

    fn key(collection: Collection<'_>, name: &str) -> Key {
        collection.key(Id::new(HOME), Some("shop"), name)
    }

    async fn put(&self, collection: Collection<'_>, name: &str, uid: &str) {
        self.remove(collection, name).await;
        let object = json!({ "metadata": { "name": name, "uid": uid } });
        let change = Change::Put(stored::encode(&object));
        self.store.commit(TestAccounts::key(collection, name), Expect::Absent, change).await.unwrap();
    }

    async fn remove(&self, collection: Collection<'_>, name: &str) {
        let key = TestAccounts::key(collection, name);
        if let Some(entry) = self.store.get(&key).await.unwrap().value {
            self.store.commit(key, Expect::Revision(entry.revision()), Change::Delete).await.unwrap();
        }
    }

    fn claims(&self) -> Claims {
        let (home, bot) = (Id::new(HOME), ObjectRef { name: "bot".to_owned(), uid: Some("u1".to_owned()) });
        Claims::new(self.accounts.issuer(home), "shop", bot, self.accounts.audiences(home))
    }

    async fn signed(&self, claims: &Claims) -> String {
        self.accounts.sign(Id::new(HOME), claims).await.unwrap()
    }

    /// Returns why a token is not valid. Empty if it is.
    async fn why(&self, token: &str) -> String {
        match self.accounts.find(token, &[]).await {
            Ok(_) => String::new(),
            Err(NotFound::Invalid(why)) => why,
            Err(other) => format!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_token_authenticates_as_a_service_account_of_its_logical_cluster() {
    let test = TestAccounts::new().await;
    let mut claims = test.claims();
    claims.jti = "j".to_owned();
    let found = test.accounts.find(&test.signed(&claims).await, &[]).await.unwrap();
    let Identity::User(user) = found.identity else { panic!("anonymous") };
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:shop:bot", "u1"));
    let groups = ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"];
    assert_eq!(user.groups, groups);
    assert_eq!(user.home, Some(Id::new(HOME)));
    assert_eq!(user.extra[CREDENTIAL], ["JTI=j"]);
    assert_eq!(found.audiences, test.accounts.audiences(Id::new(HOME)));
    // Another server on the same store verifies it, even with another address.
    let other = Accounts::new(test.store.clone(), "https://there".to_owned());
    assert!(other.find(&test.signed(&test.claims()).await, &[]).await.is_ok());
}

#[tokio::test]
async fn a_token_is_invalid_after_its_object_is_deleted_or_replaced() {
    let test = TestAccounts::new().await;
    let invalidated = "service account token has been invalidated";
    let mut bound = test.claims();
    bound.kubernetes.secret = Some(ObjectRef { name: "key".to_owned(), uid: Some("u2".to_owned()) });
    bound.exp = Some(bound.iat + 600);
    let (free, bound) = (test.signed(&test.claims()).await, test.signed(&bound).await);
    assert_eq!([test.why(&free).await, test.why(&bound).await], ["", ""]);
    test.remove(SECRETS, "key").await;
    assert_eq!([test.why(&free).await, test.why(&bound).await], ["", invalidated]);
    test.put(SECRETS, "key", "u3").await;
    assert_eq!(test.why(&bound).await, "secret UID (u3) does not match claim (u2)");
    test.put(ACCOUNTS, "bot", "u9").await;
    assert_eq!(test.why(&free).await, "service account UID (u9) does not match claim (u1)");
    test.remove(ACCOUNTS, "bot").await;
    assert_eq!(test.why(&free).await, invalidated);
}

#[tokio::test]
async fn a_token_is_valid_only_for_its_lifetime_and_audiences() {
    let test = TestAccounts::new().await;
    let now = Timestamp::now().as_second();
    let mut claims = test.claims();
    claims.exp = Some(now - 1);
    let expired = test.signed(&claims).await;
    assert_eq!(test.why(&expired).await, "Expired");
    // A token with a bad signature gets no details.
    let other = test.signed(&test.claims()).await;
    let (signed, signature) = (expired.rsplit_once('.').unwrap().0, other.rsplit_once('.').unwrap().1);
    assert_eq!(test.why(&format!("{signed}.{signature}")).await, "invalid signature");
    (claims.exp, claims.nbf) = (Some(now + 900), now + 600);
    assert_eq!(test.why(&test.signed(&claims).await).await, "service account token is not valid yet");
    let mut claims = test.claims();
    claims.aud = vec!["vault".to_owned()];
    let token = test.signed(&claims).await;
    let why = test.why(&token).await;
    assert!(why.starts_with("token audiences [\"vault\"] is invalid for the target audiences ["), "{why}");
    let found = test.accounts.find(&token, &["vault".to_owned(), "other".to_owned()]).await.unwrap();
    assert_eq!(found.audiences, ["vault"]);
}

/// Names of service accounts repeat across logical clusters; only the issuer distinguishes them.
#[tokio::test]
async fn tokens_are_valid_only_in_their_own_logical_cluster() {
    let test = TestAccounts::new().await;
    let mut claims = test.claims();
    claims.iss = test.accounts.issuer(Id::new(HOME));
    let elsewhere = test.accounts.sign(Id::new(2), &claims).await.unwrap();
    test.signed(&claims).await;
    assert_eq!(test.why(&elsewhere).await, "invalid signature");
    claims.iss = "https://somewhere/else".to_owned();
    assert_eq!(test.why(&test.signed(&claims).await).await, "Foreign");
    let token = test.signed(&test.claims()).await;
    assert_eq!(test.why(&token).await, "");
    forget(&*test.store, Id::new(HOME)).await.unwrap();
    forget(&*test.store, Id::new(HOME)).await.unwrap();
    assert_eq!(test.why(&token).await, "invalid signature", "a cached token is invalid too");
    let afresh = Accounts::new(test.store.clone(), "https://here".to_owned());
    assert!(matches!(afresh.find(&token, &[]).await, Err(NotFound::Foreign)));
}

/// Regression: a watch stayed open for an hour after its token had expired.
#[tokio::test]
async fn a_watch_ends_when_its_token_does() {
    use crate::authz::access::Access;
    use crate::clusters::records;
    use crate::clusters::records::LogicalClusterRecord;
    use crate::stack::Stack;
    use http::{Request, StatusCode};
    use http_body_util::{BodyExt, Full};

    let test = TestAccounts::new().await;
    let home = Id::new(HOME);
    records::write(&*test.store, Id::ROOT, &LogicalClusterRecord::root()).await.unwrap();
    records::write(&*test.store, home, &LogicalClusterRecord::new(Id::ROOT, "a")).await.unwrap();
    let group = "rbac.authorization.k8s.io";
    let role = json!({ "rules": [{ "verbs": ["watch"], "apiGroups": [""], "resources": ["pods"] }] });
    let binding = json!({
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "r" },
        "subjects": [{ "kind": "ServiceAccount", "name": "bot", "namespace": "shop" }],
    });
    let logical = json!({ "metadata": { "name": "a" }, "status": { "id": home.to_string() } });
    let put = async |collection: Collection<'_>, cluster: Id, name: &str, object: &Value| {
        let change = Change::Put(stored::encode(object));
        test.store.commit(collection.key(cluster, None, name), Expect::Absent, change).await.unwrap();
    };
    put(Collection { group, plural: "clusterroles" }, home, "r", &role).await;
    put(Collection { group, plural: "clusterrolebindings" }, home, "b", &binding).await;
    put(crate::clusters::logical_cluster::COLLECTION, Id::ROOT, "a", &logical).await;

    let mut claims = test.claims();
    let begun = Timestamp::now().as_second();
    claims.exp = Some(begun + 2);
    let token = test.signed(&claims).await;
    let access = Arc::new(Access::plain(test.store.clone()));
    let tasks = controller::tasks::Tasks::new();
    let stack = Stack::new(test.store.clone(), "here".to_owned(), tasks.stop());
    let stack = Arc::new(stack.with_access(access.clone()));
    let watch = async {
        let request = Request::get("/api/v1/pods?watch=1").header("authorization", format!("Bearer {token}"));
        let request = request.body(Full::<bytes::Bytes>::default()).unwrap();
        let response = stack.respond(Identity::Anonymous, request).await;
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().collect().await.unwrap().to_bytes()
    };
    let watch = tokio::time::timeout(std::time::Duration::from_secs(20), watch);
    let collected = tokio::select! {
        collected = watch => collected.expect("the watch has ended"),
        never = access.follow() => match never {},
    };
    assert!(collected.is_empty() && Timestamp::now().as_second() >= begun + 2, "{collected:?}");
}
