//! Parameters of requests: path segments and query.

use serde_json::{Value, json};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) location: ParameterLocation,
    kind: &'static str,
    description: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ParameterLocation {
    Path,
    Query,
}

const fn query(name: &'static str, kind: &'static str, description: &'static str) -> Parameter {
    Parameter { name, location: ParameterLocation::Query, kind, description }
}

const fn in_path(name: &'static str, description: &'static str) -> Parameter {
    Parameter { name, location: ParameterLocation::Path, kind: "string", description }
}

pub(super) const NAME: Parameter = in_path("name", "The name of the object.");
pub(super) const NAMESPACE: Parameter = in_path("namespace", "The namespace of the object.");
pub(super) const REST: Parameter = in_path("path", "The path of the proxied request.");
pub(super) const PRETTY: Parameter = query("pretty", "string", "If 'true', the response is indented.");

const CONTINUE: Parameter = query("continue", "string", "The continue token of the previous page.");
const FIELD_SELECTOR: Parameter =
    query("fieldSelector", "string", "Only objects whose fields have these values.");
const LABEL_SELECTOR: Parameter = query("labelSelector", "string", "Only objects whose labels match this.");
const LIMIT: Parameter = query("limit", "integer", "At most this many objects in one page.");
const RESOURCE_VERSION: Parameter =
    query("resourceVersion", "string", "The resource version to read at, or to watch from.");
const RESOURCE_VERSION_MATCH: Parameter =
    query("resourceVersionMatch", "string", "How resourceVersion is matched: Exact or NotOlderThan.");
const SEND_INITIAL_EVENTS: Parameter = query(
    "sendInitialEvents",
    "boolean",
    "Begin a watch with the existing objects as ADDED events, then a bookmark.",
);
const TIMEOUT: Parameter = query("timeoutSeconds", "integer", "How long a list or watch may take.");
const DRY_RUN: Parameter =
    query("dryRun", "string", "With 'All' the request is processed, and nothing is persisted.");
const GRACE: Parameter =
    query("gracePeriodSeconds", "integer", "Seconds the object is given to end; 0 for none.");
const IGNORE_READ_ERROR: Parameter = query(
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "boolean",
    "Delete the object even if its stored form cannot be read.",
);
const ORPHAN: Parameter =
    query("orphanDependents", "boolean", "Deprecated: use propagationPolicy. Leave dependents behind.");
const PROPAGATION: Parameter =
    query("propagationPolicy", "string", "How dependents are handled: Orphan, Background or Foreground.");

pub(super) const LIST: &[Parameter] = &[
    query("allowWatchBookmarks", "boolean", "Send bookmarks in a watch."),
    CONTINUE,
    FIELD_SELECTOR,
    LABEL_SELECTOR,
    LIMIT,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    TIMEOUT,
    query("watch", "boolean", "Stream changes instead of answering once."),
];

pub(super) const WRITE: &[Parameter] = &[
    DRY_RUN,
    query("fieldManager", "string", "Who is changing the object; at most 128 printable characters."),
    query(
        "fieldValidation",
        "string",
        "What to do about unknown and duplicate fields: Ignore, Warn or Strict.",
    ),
];

pub(super) const PATCH: &[Parameter] = &[
    WRITE[0],
    WRITE[1],
    WRITE[2],
    query("force", "boolean", "Take fields that others own; only for apply."),
];

pub(super) const DELETE: &[Parameter] = &[DRY_RUN, GRACE, IGNORE_READ_ERROR, ORPHAN, PROPAGATION];

pub(super) const DELETE_COLLECTION: &[Parameter] = &[
    CONTINUE,
    DRY_RUN,
    FIELD_SELECTOR,
    GRACE,
    IGNORE_READ_ERROR,
    LABEL_SELECTOR,
    LIMIT,
    ORPHAN,
    PROPAGATION,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    TIMEOUT,
];

const CONTAINER: Parameter =
    query("container", "string", "Which container; needed only where there are several.");
const STDERR: Parameter = query("stderr", "boolean", "Pass the container's standard error on.");
const STDIN: Parameter = query("stdin", "boolean", "Pass standard input on to the container.");
const STDOUT: Parameter = query("stdout", "boolean", "Pass the container's standard output on.");
const TTY: Parameter = query("tty", "boolean", "Give the container a terminal.");
const PATH: &[Parameter] = &[query("path", "string", "The path of the proxied request.")];

/// Parameters of subresources that are streams instead of objects.
const CONNECT: &[(&str, &[Parameter])] = &[
    ("attach", &[CONTAINER, STDERR, STDIN, STDOUT, TTY]),
    (
        "exec",
        &[
            query("command", "string", "The command and its arguments."),
            CONTAINER,
            STDERR,
            STDIN,
            STDOUT,
            TTY,
        ],
    ),
    (
        "log",
        &[
            CONTAINER,
            query("follow", "boolean", "Stay and stream what is logged next."),
            query("insecureSkipTLSVerifyBackend", "boolean", "Do not verify the kubelet's certificate."),
            query("limitBytes", "integer", "Stop after this many bytes."),
            query("previous", "boolean", "The log of the container before its last restart."),
            query("sinceSeconds", "integer", "Only what was logged in the last seconds."),
            query("stream", "string", "All, Stdout or Stderr."),
            query("tailLines", "integer", "Only this many lines from the end."),
            query("timestamps", "boolean", "Begin each line with its time."),
        ],
    ),
    ("portforward", &[query("ports", "integer", "The ports to forward.")]),
    ("proxy", PATH),
];

pub(super) fn connect(subresource: &str) -> &'static [Parameter] {
    CONNECT.iter().find(|(name, _)| *name == subresource).map_or(&[], |(_, parameters)| parameters)
}

impl Parameter {
    pub(super) fn v3(&self) -> Value {
        let mut json = self.common();
        json["schema"] = json!({ "type": self.kind, "uniqueItems": true });
        json
    }

    pub(super) fn v2(&self) -> Value {
        let mut json = self.common();
        json["type"] = self.kind.into();
        json["uniqueItems"] = true.into();
        json
    }

    fn common(&self) -> Value {
        match self.location {
            ParameterLocation::Query => {
                json!({ "name": self.name, "in": "query", "description": self.description })
            }
            ParameterLocation::Path => {
                json!({ "name": self.name, "in": "path", "description": self.description, "required": true })
            }
        }
    }
}
