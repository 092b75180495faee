//! `POST …/serviceaccounts/NAME/token`: issues a token.

use api::meta::field::FieldError;
use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::Timestamp;
use openapi::meta::status::{GroupResource, Status};
use serde_json::{Value, json};

use crate::authn::service_accounts::claims::{Claims, ObjectRef};
use crate::authn::service_accounts::{Accounts, NODES, PODS, SECRETS, object_ref};
use crate::endpoints::{get, pod_actions};
use crate::http::body::Body;
use crate::keys::Collection;
use crate::objects::store_errors::unreadable;
use crate::objects::{metadata, stored};
use crate::registry::call::Call;
use crate::response::render::Style;

const GROUP: &str = "authentication.k8s.io";
const KIND: GroupResource<'static> = GroupResource { group: GROUP, name: "TokenRequest" };
/// The default is one hour.
const SECONDS: i64 = 3600;
const SECONDS_MIN: i64 = 600;
const SECONDS_MAX: i64 = 1 << 32;

/// Reports whether a call is a TokenRequest.
pub(crate) fn is_one(call: &Call) -> bool {
    call.subresource.as_deref() == Some("token")
        && (&*call.resource.group, &*call.resource.plural) == ("", "serviceaccounts")
}

impl Accounts {
    pub(crate) async fn request(
        &self,
        call: &Call,
        style: &Style,
        bytes: &Bytes,
    ) -> Result<Response<Body>, Status> {
        let mut request = pod_actions::sent(call, GROUP, "v1", "TokenRequest", bytes)?;
        let (name, _) = call.name_and_key()?;
        let namespace = call.namespace.as_deref().unwrap_or_default();
        let sent_name = metadata::text(&request, "name");
        if !sent_name.is_empty() && sent_name != name {
            let why = "must match the service account name if specified";
            return Err(Status::invalid(KIND, name, &[FieldError::invalid("metadata.name", sent_name, why)]));
        }
        let account = object_ref(&call.tree(&get::find(self.store(), call).await?)?);
        let uid = account.uid.clone().unwrap_or_default();
        let sent_uid = metadata::text(&request, "uid");
        if !sent_uid.is_empty() && sent_uid != uid {
            let why = format!(
                "the UID in the token request ({sent_uid}) does not match the UID of the service account ({uid})"
            );
            return Err(Status::conflict(KIND, name, &why));
        }
        let seconds = seconds(&request["spec"])?;
        let mut audiences: Vec<String> = texts(&request["spec"]["audiences"]);
        if audiences.is_empty() {
            audiences = self.audiences(call.cluster);
        }
        let mut claims = Claims::new(self.issuer(call.cluster), namespace, account, audiences.clone());
        claims.exp = Some(claims.iat + seconds);
        self.bind(call, name, &request["spec"]["boundObjectRef"], &mut claims).await?;
        let expires = Timestamp::from_second(claims.iat + seconds).map(metadata::time).unwrap_or_default();
        let token = match call.query.dry_run() {
            true => String::new(),
            false => {
                let made = self.sign(call.cluster, &claims).await;
                made.map_err(|error| crate::registry::call::unwritten(call, name, error))?
            }
        };
        let bound = request["spec"]["boundObjectRef"].take();
        request["apiVersion"] = format!("{GROUP}/v1").into();
        request["kind"] = KIND.name.into();
        request["metadata"] =
            json!({ "name": name, "namespace": namespace, "uid": uid, "creationTimestamp": metadata::now() });
        request["spec"] =
            json!({ "audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound });
        request["status"] = json!({ "token": token, "expirationTimestamp": expires });
        style.answer_tree(StatusCode::CREATED, &request, &[])
    }

    /// Binds the token to the object that the request names, if any.
    async fn bind(
        &self,
        call: &Call,
        account: &str,
        reference: &Value,
        claims: &mut Claims,
    ) -> Result<(), Status> {
        if reference.is_null() {
            return Ok(());
        }
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let (name, kind) = (text("name"), text("kind"));
        let namespace = call.namespace.as_deref();
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        let object = match (group, kind) {
            ("", "Pod") => self.bound(call, PODS, namespace, name).await?,
            ("", "Secret") => self.bound(call, SECRETS, namespace, name).await?,
            ("", "Node") => self.bound(call, NODES, None, name).await?,
            _ => {
                let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
                return Err(Status::bad_request(why));
            }
        };
        let bound = object_ref(&object);
        let sent_uid = text("uid");
        if !sent_uid.is_empty() && bound.uid.as_deref() != Some(sent_uid) {
            let why = format!(
                "the UID in the bound object reference ({sent_uid}) does not match the UID in record. \
                 The object might have been deleted and then recreated"
            );
            return Err(Status::conflict(GroupResource::new(group, kind), name, &why));
        }
        let claimed = &mut claims.kubernetes;
        match kind {
            "Secret" => claimed.secret = Some(bound),
            "Node" => claimed.node = Some(bound),
            _ => {
                if object["spec"]["serviceAccountName"].as_str().unwrap_or_default() != account {
                    return Err(Status::bad_request(format!(
                        "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
                    )));
                }
                claimed.pod = Some(bound);
                claimed.node = self.node(call, &object).await?;
            }
        }
        Ok(())
    }

    async fn bound(
        &self,
        call: &Call,
        collection: Collection<'_>,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Value, Status> {
        let found =
            self.store().get(&collection.key(call.cluster, namespace, name)).await.map_err(unreadable)?;
        let object = found.value.and_then(|entry| stored::tree(&entry).ok());
        object.ok_or_else(|| Status::not_found(GroupResource::new(collection.group, collection.plural), name))
    }

    /// Returns the node of a pod: its name, and its uid if the Node exists here.
    async fn node(&self, call: &Call, pod: &Value) -> Result<Option<ObjectRef>, Status> {
        let Some(name) = pod["spec"]["nodeName"].as_str().filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        Ok(Some(match self.bound(call, NODES, None, name).await {
            Ok(node) => object_ref(&node),
            Err(status) if status.code == 404 => ObjectRef { name: name.to_owned(), uid: None },
            Err(status) => return Err(status),
        }))
    }
}

fn seconds(spec: &Value) -> Result<i64, Status> {
    let seconds = match &spec["expirationSeconds"] {
        Value::Null => SECONDS,
        value => value.as_i64().unwrap_or_default(),
    };
    let refused = |why: &str| {
        let error = FieldError::invalid("spec.expirationSeconds", seconds, why);
        Err(Status::invalid(KIND, "", &[error]))
    };
    match seconds {
        ..SECONDS_MIN => refused("may not specify a duration less than 10 minutes"),
        seconds if seconds > SECONDS_MAX => refused("may not specify a duration larger than 2^32 seconds"),
        seconds => Ok(seconds),
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
