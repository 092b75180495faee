//! Parses and changes image names.

/// `registry/repository:tag@digest`. The part before the first slash is a registry if it looks like a host.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ImageName<'a> {
    registry: Option<&'a str>,
    repository: &'a str,
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

impl<'a> ImageName<'a> {
    fn parse(text: &'a str) -> ImageName<'a> {
        let is_host = |prefix: &&str| prefix.contains(['.', ':']) || *prefix == "localhost";
        let first = text.split_once('/').map(|(first, _)| first).filter(is_host);
        let rest = first.map_or(text, |registry| &text[registry.len() + 1..]);
        let (rest, digest) = rest.split_once('@').map_or((rest, None), |(rest, digest)| (rest, Some(digest)));
        let (repository, tag) = rest.rsplit_once(':').map_or((rest, None), |(rest, tag)| (rest, Some(tag)));
        ImageName { registry: first, repository, tag, digest }
    }
}

/// The name with another registry, and another tag or digest. A digest identifies one image, so another tag removes it.
pub fn renamed(image: &str, registry: Option<&str>, tag: Option<&str>) -> String {
    let mut name = ImageName::parse(image);
    name.registry = registry.or(name.registry);
    match tag {
        Some(digest) if digest.starts_with("sha256:") => (name.tag, name.digest) = (None, Some(digest)),
        Some(tag) => (name.tag, name.digest) = (Some(tag), None),
        None => {}
    }
    let registry = name.registry.map(|registry| format!("{registry}/")).unwrap_or_default();
    let tag = name.tag.map(|tag| format!(":{tag}")).unwrap_or_default();
    let digest = name.digest.map(|digest| format!("@{digest}")).unwrap_or_default();
    format!("{registry}{}{tag}{digest}", name.repository)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_image_name_are_replaced() {
        let check = |image: &str, registry: Option<&str>, tag: Option<&str>, expected: &str| {
            assert_eq!(renamed(image, registry, tag), expected, "{image} {registry:?} {tag:?}");
        };
        let mirror = Some("mirror.example:5000");
        check("nginx", None, None, "nginx");
        check("nginx", mirror, None, "mirror.example:5000/nginx");
        check("library/nginx:1.27", mirror, None, "mirror.example:5000/library/nginx:1.27");
        check("ghcr.io/team/app:v1", mirror, None, "mirror.example:5000/team/app:v1");
        check("localhost:5000/app", mirror, Some("v2"), "mirror.example:5000/app:v2");
        check("ghcr.io/team/app@sha256:aa", None, Some("v2"), "ghcr.io/team/app:v2");
        check("ghcr.io/team/app:v1@sha256:aa", mirror, None, "mirror.example:5000/team/app:v1@sha256:aa");
        check("team/app:v1", None, Some("sha256:bb"), "team/app@sha256:bb");
    }
}
