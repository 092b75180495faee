//! `kubectl logs`, `exec`, `attach`, `port-forward`, `cp`, `debug`, `proxy` and `top` on what runs, led to the physical
//! cluster it runs on.
//!
//! ```text
//!   client ─► Holon: who may ─► the pod is there ─► place: where it runs ─► way ─► the physical cluster's API ─► kubelet
//!          ◄──────────────────── bytes, both ways, whatever they mean ────────────────────►
//!
//!   way:   push: a client of the physical cluster, by its kubeconfig
//!          pull: a line that its syncer dialled
//! ```
//!
//! The physical cluster is asked as its syncer, so nothing the client says about itself goes along. A connection that is
//! upgraded is not looked into: what is spoken on it is between the client and the kubelet. It ends when the client may no
//! longer have it, which is the server's business, and when the way is gone.

mod line;
mod place;
mod top;
mod usage;
mod way;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::cluster::Id;
use api::names::{GROUP, SYNCER_ACCOUNT};
use api::tunnel::{METRICS, PART, PROTOCOL, is_answered, is_asked, is_led};
use apiserver::auth::proof::Proof;
use apiserver::connect::{Connect, Part, Upgrade, Wish};
use apiserver::identity::Identity;
use apiserver::server::{Body, Broken, whole};
use bytes::Bytes;
use controller::remote::Remote;
use futures::{StreamExt, stream};
use http::header::{CONNECTION, LOCATION, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use kube::Client;
use openapi::meta::status::Status;
use serde_json::Value;
use storage::Boxed;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::task::JoinSet;

use self::line::Line;
use self::place::{Bare, Place};
use self::way::{Answer, Gone, Room, Way};

/// The ways to physical clusters, by the mailbox of each.
#[derive(Default)]
pub(crate) struct Tunnels {
    ways: Arc<Mutex<Ways>>,
    /// Connections that were upgraded, and lines.
    open: Mutex<JoinSet<()>>,
    /// Reads what is in mailboxes.
    server: Arc<Mutex<Option<Remote>>>,
}

#[derive(Default)]
struct Ways {
    /// Those that are open, in the order in which they were opened. The last is used: whoever dials anew may have lost one
    /// that still seems to be there.
    by_mailbox: HashMap<Id, BTreeMap<u64, Arc<Way>>>,
    /// How many there have been.
    count: u64,
}

/// A way that others may use for as long as this is kept. Whatever is on it when this is dropped ends.
pub(crate) struct Opened {
    ways: Arc<Mutex<Ways>>,
    mailbox: Id,
    /// Tells it from the others to the same mailbox.
    number: u64,
    way: Arc<Way>,
    _gone: Gone,
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut ways = lock(&self.ways);
        let Some(open) = ways.by_mailbox.get_mut(&self.mailbox) else { return };
        open.remove(&self.number);
        if open.is_empty() {
            ways.by_mailbox.remove(&self.mailbox);
        }
    }
}

impl fmt::Debug for Tunnels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ways", lock(&self.ways).by_mailbox.len())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tunnels {
    /// A physical cluster this server connects to itself.
    pub(crate) fn push(&self, mailbox: Id, below: Client) -> Opened {
        let opened = open(&self.ways, mailbox, Way::push(below));
        let (way, server) = (opened.way.clone(), self.server.clone());
        self.spawn(async move {
            tokio::select! {
                never = usage::keep(&way, mailbox, &server) => match never {},
                () = way.gone() => {}
            }
        });
        opened
    }

    /// Finds pods of mailboxes here, or nowhere any more.
    pub(crate) fn read_from(&self, server: Option<Remote>) {
        *lock(&self.server) = server;
    }

    /// Those there is a way from.
    fn mailboxes(&self) -> Vec<Id> {
        lock(&self.ways).by_mailbox.keys().copied().collect()
    }

    fn way(&self, mailbox: Id) -> Result<Arc<Way>, Status> {
        let ways = lock(&self.ways);
        let way = ways.by_mailbox.get(&mailbox).and_then(|open| open.values().next_back().cloned());
        way.ok_or_else(|| Status::unavailable("its physical cluster is not connected to this server"))
    }

    async fn lead(&self, wish: Wish) -> Result<Response<Body>, Status> {
        if wish.part == PART {
            return self.accept(wish);
        }
        let server = lock(&self.server).clone();
        if wish.group == METRICS.0 && self.way(wish.cluster).is_err() {
            let question = top::Question::of(&wish)?;
            drop(wish);
            return top::answer(self, server.ok_or_else(place::no_server)?, question).await;
        }
        let bare = Bare::of(&wish);
        let place = match bare {
            Some(bare) => bare.find(&self.mailboxes(), server).await?,
            None => {
                let place = Place::of(&wish)?;
                place.verify(server).await?;
                place
            }
        };
        let way = self.way(place.mailbox)?;
        // Beside those of others, so many at a time; kept until the last byte has gone.
        let room = way.enter()?;
        let protocol = wish.upgrade.as_ref().and_then(|_| wish.headers.get(UPGRADE).cloned());
        let answer = way.ask(asked(&wish, &place)?, protocol.as_ref()).await?;
        match (answer.status(), wish.upgrade, protocol) {
            (StatusCode::SWITCHING_PROTOCOLS, Some(client), Some(protocol)) => {
                Ok(self.splice(client, answer, &wish.part, protocol, room))
            }
            (StatusCode::SWITCHING_PROTOCOLS, ..) => {
                Err(Status::unavailable("it talks otherwise than it was asked to"))
            }
            _ => Ok(passed(answer, &wish.part, &place, room)),
        }
    }

    /// Answers that the connection is upgraded, and leads bytes both ways for as long as either side likes.
    fn splice(
        &self,
        client: Upgrade,
        mut answer: Response<Answer>,
        part: &str,
        protocol: HeaderValue,
        mut room: Room,
    ) -> Response<Body> {
        let below = hyper::upgrade::on(&mut answer);
        self.spawn(async move {
            let (Ok(client), Ok(below)) = tokio::join!(client.open(), below) else { return };
            let lost = client.lost();
            lead_bytes(client, TokioIo::new(below), lost, room.gone()).await;
        });
        changed_over(answer.headers(), part, protocol)
    }

    /// A syncer dials in: what it is asked from now on it is asked on this connection.
    fn accept(&self, wish: Wish) -> Result<Response<Body>, Status> {
        if !is_syncer(&wish.identity, wish.cluster) {
            return Err(Status::bad_request(
                "a tunnel is opened by the syncer of the mailbox, with its token",
            ));
        }
        let protocol = wish.headers.get(UPGRADE).filter(|protocol| *protocol == PROTOCOL).cloned();
        let (Some(upgrade), Some(protocol)) = (wish.upgrade, protocol) else {
            return Err(Status::bad_request(format!("what is spoken here is {PROTOCOL}")));
        };
        let (ways, server, mailbox) = (self.ways.clone(), self.server.clone(), wish.cluster);
        self.spawn(async move {
            let held = async {
                let (line, connection) = Line::open(upgrade.open().await?).await?;
                let mut connection = std::pin::pin!(connection);
                tokio::select! {
                    greeted = line.greet() => greeted?,
                    ended = &mut connection => return ended,
                }
                let opened = open(&ways, mailbox, Way::pull(line));
                tracing::info!(%mailbox, "a tunnel was opened");
                tokio::select! {
                    never = usage::keep(&opened.way, mailbox, &server) => match never {},
                    ended = connection => ended,
                }
            };
            match held.await {
                Ok(()) => tracing::info!(%mailbox, "a tunnel was closed"),
                Err(error) => tracing::info!(%mailbox, %error, "a tunnel broke"),
            }
        });
        Ok(changed_over(&HeaderMap::new(), PART, protocol))
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut open = lock(&self.open);
        // Those that have ended are not kept.
        while open.try_join_next().is_some() {}
        open.spawn(task);
    }
}

impl Connect for Tunnels {
    fn leads(&self, part: Part<'_>) -> bool {
        match part.group {
            "" => is_led(part.plural, part.part),
            GROUP => part.plural == "physicalclusters" && part.part == PART,
            group => group == METRICS.0 && part.part.is_empty(),
        }
    }

    fn runs(&self, cluster: Id, who: &Identity, object: &Value) -> bool {
        // Whoever shows what is below writes here what is there already.
        let shows = who.has_mandate() || crate::guard::is_syncer_of(who, cluster);
        !shows && place::runs(object) && (place::is_raised(object) || self.way(cluster).is_ok())
    }

    fn connect(&self, wish: Wish) -> Boxed<'_, Result<Response<Body>, Status>> {
        Box::pin(self.lead(wish))
    }
}

/// Leads bytes both ways until either side breaks off, the client may no longer have it, or the way is gone; the other side
/// then sees the end. That is waited for by itself: of two sides that are both waited for neither tells anything.
async fn lead_bytes(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    mut below: impl AsyncRead + AsyncWrite + Unpin,
    lost: impl Future<Output = ()>,
    gone: impl Future<Output = ()>,
) {
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut below) => {}
        () = lost => {}
        () = gone => {}
    }
}

fn open(ways: &Arc<Mutex<Ways>>, mailbox: Id, (way, gone): (Way, Gone)) -> Opened {
    let mut locked = lock(ways);
    locked.count += 1;
    let number = locked.count;
    let way = Arc::new(way);
    locked.by_mailbox.entry(mailbox).or_default().insert(number, way.clone());
    drop(locked);
    Opened { ways: ways.clone(), mailbox, number, way, _gone: gone }
}

/// Whether somebody is the service account that the syncer of a mailbox is, by a token. Not somebody who acts as it: an
/// administrator can, and would then be the physical cluster to everybody.
fn is_syncer(identity: &Identity, mailbox: Id) -> bool {
    let Identity::User(user) = identity else { return false };
    let name = format!("system:serviceaccount:kube-system:{SYNCER_ACCOUNT}");
    user.name == name && user.home == Some(mailbox) && matches!(user.proof, Proof::Token(_))
}

/// What the physical cluster is asked.
fn asked(wish: &Wish, place: &Place) -> Result<Request<Bytes>, Status> {
    if wish.group == METRICS.0 && wish.method != Method::GET {
        return Err(Status::wrong_method());
    }
    let query: String = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(wish.query.iter().map(|(name, value)| (name.as_str(), value.as_str())))
        .finish();
    let separator = if query.is_empty() { "" } else { "?" };
    let target = format!("{}{}{separator}{query}", place.path, wish.rest);
    let request = Request::builder().method(wish.method.clone()).uri(target).body(wish.body.clone());
    let mut request = request.map_err(|error| Status::bad_request(error.to_string()))?;
    copy(&wish.headers, request.headers_mut(), |name| is_asked(&wish.part, name));
    Ok(request)
}

/// The answer as it comes, piece by piece. One that breaks off, or whose way does, breaks off here, too: whoever wrote half a
/// log to a file would not know.
fn passed(answer: Response<Answer>, part: &str, place: &Place, room: Room) -> Response<Body> {
    let (head, body) = answer.into_parts();
    let begun = Some((body.into_data_stream(), room));
    let frames = stream::unfold(begun, async |state| {
        let (mut pieces, mut room) = state?;
        let piece = tokio::select! {
            piece = pieces.next() => piece?.map_err(|error| tracing::debug!(error, "an answer broke off")),
            () = room.gone() => Err(()),
        };
        Some(match piece {
            Ok(piece) => (Ok(Frame::data(piece)), Some((pieces, room))),
            Err(()) => (Err(Broken), None),
        })
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    *response.status_mut() = head.status;
    copy(&head.headers, response.headers_mut(), |name| is_answered(part, name));
    // The physical cluster's address of what is behind the proxy is not the client's.
    let elsewhere = head.headers.get(LOCATION).and_then(|location| place.seen(location));
    if let Some(location) = elsewhere {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

fn changed_over(headers: &HeaderMap, part: &str, protocol: HeaderValue) -> Response<Body> {
    let mut response = Response::new(whole(Empty::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    copy(headers, response.headers_mut(), |name| is_answered(part, name));
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(UPGRADE, protocol);
    response
}

fn copy(from: &HeaderMap, to: &mut HeaderMap, passes: impl Fn(&str) -> bool) {
    for (name, value) in from.iter().filter(|(name, _)| passes(name.as_str())) {
        to.append(name, value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::future::pending;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::sync::oneshot;

    fn nobody() -> Client {
        let service = tower::service_fn(|_: Request<kube::client::Body>| async {
            Ok::<_, Infallible>(Response::new(kube::client::Body::empty()))
        });
        Client::new(service, "default")
    }

    /// Of two syncers of one mailbox each dials a line. When the later one ended nobody was led anywhere, until the other had
    /// dialled again.
    #[tokio::test]
    async fn when_a_line_ends_one_that_is_still_open_is_used() {
        let (tunnels, mailbox) = (Tunnels::default(), Id::ROOT);
        let used = || tunnels.way(mailbox).ok();
        let is = |opened: &Opened| used().is_some_and(|way| Arc::ptr_eq(&way, &opened.way));
        let [first, second, third] = [(); 3].map(|()| tunnels.push(mailbox, nobody()));
        assert!(is(&third));
        drop(second);
        assert!(is(&third));
        drop(third);
        assert!(is(&first));
        drop(first);
        assert!(used().is_none() && tunnels.mailboxes().is_empty());
    }

    /// What the client sends is not taken by the pod, which says nothing either. Then nobody asks the client's side for
    /// anything, and that was the one place where it was noticed that the client had been shut out.
    #[tokio::test]
    async fn who_is_shut_out_is_cut_off_from_a_pod_that_does_not_read() {
        let ((mut client, above), (below, mut pod)) = (duplex(16), duplex(16));
        let (shut_out, told) = oneshot::channel::<()>();
        let mut leading = JoinSet::new();
        leading.spawn(lead_bytes(above, below, async { _ = told.await }, pending()));
        let mut sent = 0;
        while tokio::time::timeout(Duration::from_millis(20), client.write_all(b"more")).await.is_ok() {
            sent += 4;
        }
        assert!(sent > 32);
        drop(shut_out);
        let ended = tokio::time::timeout(Duration::from_secs(10), leading.join_next()).await;
        ended.expect("it is cut off").unwrap().unwrap();
        assert!(client.write_all(b"more").await.is_err());
        let mut rest = Vec::new();
        pod.read_to_end(&mut rest).await.unwrap();
        assert!(rest.len() >= 16);
    }
}
