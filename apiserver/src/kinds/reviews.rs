//! Reviews: kinds that are answered when they are created, and never stored.

use openapi::catalog::resource_info::ResourceInfo;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Review {
    /// The user who sends the request.
    SelfSubject,
    /// Whether the user may send a request.
    SelfAccess,
    /// Whether any user may send a request.
    Access,
    /// Whether any user may send a request in this namespace.
    LocalAccess,
    /// All rules of the user.
    SelfRules,
    /// The user of a token.
    Token,
}

const AUTHENTICATION: &str = "authentication.k8s.io";
pub(crate) const AUTHORIZATION: &str = "authorization.k8s.io";

const REVIEWS: &[(&str, &str, Review)] = &[
    (AUTHENTICATION, "selfsubjectreviews", Review::SelfSubject),
    (AUTHENTICATION, "tokenreviews", Review::Token),
    (AUTHORIZATION, "localsubjectaccessreviews", Review::LocalAccess),
    (AUTHORIZATION, "selfsubjectaccessreviews", Review::SelfAccess),
    (AUTHORIZATION, "selfsubjectrulesreviews", Review::SelfRules),
    (AUTHORIZATION, "subjectaccessreviews", Review::Access),
];

impl Review {
    /// Returns the review of this kind, if it is one.
    pub(crate) fn of(resource: &ResourceInfo) -> Option<Review> {
        let found = REVIEWS
            .iter()
            .find(|(group, plural, _)| *group == &*resource.group && *plural == &*resource.plural);
        found.map(|(_, _, review)| *review)
    }
}
