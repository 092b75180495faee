//! Parses the tag of an image name.

/// Returns the tag, or `latest` for a name with neither tag nor digest. Returns `None` for a name with only a digest
/// and for an invalid name.
pub(super) fn tag(image: &str) -> Option<&str> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let path_start = name.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match name[path_start..].find(':') {
        Some(colon) => (&name[..path_start + colon], Some(&name[path_start + colon + 1..])),
        None => (name, None),
    };
    if !is_name(name) || !tag.is_none_or(is_tag) || !digest.is_none_or(is_digest) {
        return None;
    }
    tag.or(if digest.is_none() { Some("latest") } else { None })
}

fn is_name(name: &str) -> bool {
    // 64 hexadecimal digits are an image id, not a name.
    if name.len() == 64 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return false;
    }
    let path = match name.split_once('/') {
        Some((domain, path)) if is_domain(domain) => path,
        _ => name,
    };
    name.len() <= 255 && path.split('/').all(is_component)
}

/// Reports whether the first part of a name is a registry, and not a path segment in the default registry.
fn is_domain(first: &str) -> bool {
    let host = first.split_once(':').map_or(first, |(host, _)| host);
    let looks_like_one = first.contains(['.', ':']) || first == "localhost" || first.to_lowercase() != first;
    looks_like_one && !host.is_empty() && (host.starts_with('[') || host.split('.').all(is_label))
}

fn is_label(label: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
    !label.is_empty() && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
}

/// Reports whether a text consists of lower-case words, joined by a dot, one or two underscores, or dashes.
fn is_component(component: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut joints = component.split(is_word).filter(|joint| !joint.is_empty());
    component.starts_with(is_word)
        && component.ends_with(is_word)
        && joints.all(|joint| matches!(joint, "." | "_" | "__") || joint.chars().all(|c| c == '-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.starts_with(is_word) && tag.len() <= 128 && tag.chars().all(|c| is_word(c) || c == '.' || c == '-')
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    algorithm.starts_with(|c: char| c.is_ascii_alphabetic())
        && hex.len() >= 32
        && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::tag;

    #[test]
    fn a_tag_is_found_behind_names_ports_and_digests() {
        let digest = format!("@sha256:{}", "a1".repeat(32));
        for (image, expected) in [
            ("nginx", Some("latest")),
            ("nginx:latest", Some("latest")),
            ("nginx:1.27", Some("1.27")),
            ("library/nginx", Some("latest")),
            ("localhost/nginx", Some("latest")),
            ("example.com:5000/a/b", Some("latest")),
            ("example.com:5000/a/b:v1", Some("v1")),
            ("Example.com/a", Some("latest")),
            ("a__b-c.d/e--f", Some("latest")),
            (&format!("nginx{digest}"), None),
            (&format!("nginx:latest{digest}"), Some("latest")),
            ("", None),
            ("Nginx", None),
            ("nginx:", None),
            ("nginx:a b", None),
            ("a//b", None),
            ("a___b", None),
            ("nginx@sha256:short", None),
            (&"a1".repeat(32), None),
        ] {
            assert_eq!(tag(image), expected, "{image}");
        }
    }
}
