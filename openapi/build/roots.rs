//! The types a client can send or receive as a whole. Whatever they contain follows by itself.

use k8s_openapi::schemars::generate::SchemaSettings;
use k8s_openapi::serde_json::{Map, Value};

macro_rules! collect {
    ($generator:expr, $($($module:ident)::+ :: { $($kind:ident $(<$of:ty>)?),* $(,)? })*) => {
        $({
            use k8s_openapi::$($module)::+ as module;
            $( let _ = $generator.subschema_for::<module::$kind $(<$of>)?>(); )*
        })*
    };
}

/// Definitions by name, referring to each other as OpenAPI v3 does.
pub(crate) fn definitions() -> Map<String, Value> {
    let settings = SchemaSettings::draft07().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    collect!(generator,
        api::core::v1::{
            Binding, ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node,
            PersistentVolumeClaim, PersistentVolume, Pod, PodTemplate, ReplicationController, ResourceQuota,
            Secret, ServiceAccount, Service,
        }
        api::admissionregistration::v1::{
            MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
            ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
        }
        api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet}
        api::authentication::v1::{SelfSubjectReview, TokenRequest, TokenReview}
        api::authorization::v1::{
            LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
        }
        api::autoscaling::v1::{HorizontalPodAutoscaler, Scale}
        api::autoscaling::v2::{HorizontalPodAutoscaler}
        api::batch::v1::{CronJob, Job}
        api::certificates::v1::{CertificateSigningRequest}
        api::coordination::v1::{Lease}
        api::discovery::v1::{EndpointSlice}
        api::events::v1::{Event}
        api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration}
        api::networking::v1::{IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR}
        api::node::v1::{RuntimeClass}
        api::policy::v1::{Eviction, PodDisruptionBudget}
        api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding}
        api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice}
        api::scheduling::v1::{PriorityClass}
        api::storage::v1::{
            CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
        }
        apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition}
        kube_aggregator::pkg::apis::apiregistration::v1::{APIService}
        apimachinery::pkg::apis::meta::v1::{
            APIGroup, APIGroupList, APIResourceList, APIVersions, DeleteOptions, ListMeta, Patch, Status,
            WatchEvent<k8s_openapi::api::core::v1::Pod>,
        }
        apimachinery::pkg::version::{Info}
    );
    generator.take_definitions(false)
}
