//! Kinds whose objects are questions. They are answered when they are created, and never stored.

use openapi::catalog::resource_info::ResourceInfo;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Review {
    /// Who am I?
    SelfSubject,
    /// May I?
    SelfAccess,
    /// May they?
    Access,
    /// May they, in this namespace?
    LocalAccess,
    /// What may I?
    SelfRules,
    /// Whose is this token?
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
    /// Which question objects of this kind ask, if they ask one.
    pub(crate) fn of(resource: &ResourceInfo) -> Option<Review> {
        let found = REVIEWS
            .iter()
            .find(|(group, plural, _)| *group == &*resource.group && *plural == &*resource.plural);
        found.map(|(_, _, review)| *review)
    }
}
