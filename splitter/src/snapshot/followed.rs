//! Which objects of each kind the caches keep.

use std::sync::Arc;

use controller::informer::{CachedObject, FollowedView, View};

/// Every namespace has these, and they are never propagated.
const CERTIFICATES: &str = "kube-root-ca.crt";
const DEFAULT_ACCOUNT: &str = "default";

/// A view as it follows the history of the server.
pub(crate) fn followed(view: &Arc<View>) -> FollowedView {
    match (view.kind.group.as_str(), view.kind.name.as_str()) {
        ("", "ConfigMap") => {
            FollowedView::filtered(view, |object: &CachedObject| object.key.name != CERTIFICATES)
        }
        ("", "ServiceAccount") => {
            FollowedView::filtered(view, |object: &CachedObject| object.key.name != DEFAULT_ACCOUNT)
        }
        _ => FollowedView::all(view),
    }
}
