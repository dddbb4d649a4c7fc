//! The server: what it is made of, and how a request goes through it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::Router;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, get, on, post};
use roundel::Client;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::api::login;
use crate::auth::{Action, COOKIE, Sessions, Token, Tokens, Who, actions, hash};
use crate::guard::{Hosts, Rates, same_site, seal};
use crate::limits::Limits;
use crate::listen::{self, Certified, Serving};
use crate::live::Lately;
use crate::problem::{Code, Problem};
use crate::ready::Ready;
use crate::route::{Raw, Route};
use crate::tls::Tls;
use crate::{table, ui};

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Make tokens first.
    #[error(
        "{0} can be reached by others, and there are no tokens; make one (`roundel tokens add`), \
         or serve on 127.0.0.1"
    )]
    Open(SocketAddr),
    /// Choose another address.
    #[error("{0} cannot be served: {1}")]
    Address(SocketAddr, std::io::Error),
}

/// A server being set up.
#[must_use = "it does nothing until built"]
#[derive(Debug)]
pub struct ServerBuilder {
    client: Client,
    tokens: Option<Tokens>,
    hosts: Vec<String>,
    limits: Limits,
    behind_tls: bool,
    tls: Option<Tls>,
}

/// A server over a client: a router to mount, or one to serve by itself. Cheap to clone.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({:?})", self.0.client)
    }
}

/// What the server counts of itself.
#[derive(Default)]
pub(crate) struct Counted {
    pub(crate) requests: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
}

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) tokens: Option<Tokens>,
    pub(crate) sessions: Sessions,
    pub(crate) hosts: Hosts,
    pub(crate) limits: Limits,
    pub(crate) rates: Rates,
    pub(crate) behind_tls: bool,
    /// Its own, if it has it.
    pub(crate) tls: Option<Tls>,
    pub(crate) ready: Ready,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) polls: Arc<Semaphore>,
    pub(crate) lately: Lately,
    pub(crate) counts: Counted,
    /// True once it was asked to stop.
    pub(crate) stopping: watch::Sender<bool>,
}

impl Server {
    /// Over this client: it may look into other namespaces too, as tokens allow.
    pub fn over(client: Client) -> ServerBuilder {
        ServerBuilder {
            client,
            tokens: None,
            hosts: Vec::new(),
            limits: Limits::default(),
            behind_tls: false,
            tls: None,
        }
    }

    /// The routes, to be mounted in a program of your own: `app.nest("/roundel", router)`. Limits
    /// of connections and heads are then those of your server.
    pub fn router(&self) -> Router {
        let mut router = Router::new();
        for route in table::routes() {
            let (server, path) = (self.0.clone(), route.listed.path);
            router = router.route(path, mounted(server, route));
        }
        let server = &self.0;
        let login = get(open(server, login::look));
        router
            .route("/healthz", get(open(server, healthy)))
            .route("/readyz", get(open(server, is_ready)))
            .route("/login", login.merge(post(open(server, login::enter))))
            .method_not_allowed_fallback(open(server, |server, _| async move {
                let text = "this path has no such method";
                server.refuse(Problem::new(Code::MethodNotAllowed, text))
            }))
            .fallback(open(server, |server, _| async move {
                server.refuse(Problem::missing("there is no such path"))
            }))
    }

    /// A word that lets in once, as an administrator: for a link that is shown to whoever started
    /// the server. `http://HOST/login?code=WORD`.
    #[must_use]
    pub fn login_code(&self) -> Token {
        let now = self.0.client.now();
        self.0.sessions.code(Arc::new(Who::local()), now)
    }

    /// Serves on this address, with time-outs and limits of its own.
    ///
    /// # Errors
    /// When others can reach the address and there are no tokens; when it cannot be had.
    pub async fn serve(&self, address: SocketAddr) -> Result<Serving, SetupError> {
        let protected = self
            .0
            .tokens
            .as_ref()
            .is_some_and(|tokens| !tokens.is_empty());
        if !address.ip().is_loopback() && !protected {
            return Err(SetupError::Open(address));
        }
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| SetupError::Address(address, error))?;
        listen::serve(listener, self.router(), self.0.clone())
            .map_err(|error| SetupError::Address(address, error))
    }
}

impl ServerBuilder {
    /// Who may come in. Nobody unless said, but by [a code](Server::login_code).
    pub fn tokens(mut self, tokens: Tokens) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// It also goes by this name, beside those of loopback.
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.hosts.push(name.into());
        self
    }

    /// Browsers reach it by TLS, through a proxy: cookies are sent by nothing else.
    pub fn behind_tls(mut self) -> Self {
        self.behind_tls = true;
        self
    }

    /// By TLS of its own. Cookies are sent by nothing else.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self.behind_tls()
    }

    /// With these limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The server.
    #[must_use]
    pub fn build(self) -> Server {
        Server(Arc::new(Shared {
            ready: Ready::default(),
            lately: Lately::default(),
            counts: Counted::default(),
            sessions: Sessions::default(),
            hosts: Hosts::new(&self.hosts),
            rates: Rates::new(&self.limits),
            streams: Arc::new(Semaphore::new(self.limits.streams)),
            polls: Arc::new(Semaphore::new(self.limits.polls)),
            stopping: watch::Sender::new(false),
            client: self.client,
            tokens: self.tokens,
            limits: self.limits,
            behind_tls: self.behind_tls,
            tls: self.tls,
        }))
    }
}

fn mounted(server: Arc<Shared>, route: Route) -> MethodRouter {
    let method = MethodFilter::try_from(route.listed.method.clone()).expect("a usual method");
    let route = Arc::new(route);
    on(method, move |params: Params, request: Request| {
        let (server, route) = (server.clone(), route.clone());
        async move {
            server.counts.requests.fetch_add(1, Ordering::Relaxed);
            let answered = match params {
                Ok(params) => server.answer(&route, &params, request).await,
                Err(_) => Err(Problem::bad("the path is not UTF-8")),
            };
            let told = |problem: Problem| {
                let stranger = problem.code == Code::Unauthenticated;
                let page = stranger.then(|| ui::stranger(route.listed.path)).flatten();
                page.unwrap_or_else(|| problem.into_response())
            };
            seal(answered.unwrap_or_else(told), server.behind_tls)
        }
    })
}

type Params = Result<RawPathParams, RawPathParamsRejection>;

impl Shared {
    async fn answer(
        self: &Arc<Self>,
        route: &Route,
        params: &RawPathParams,
        request: Request,
    ) -> Result<Response, Problem> {
        let (parts, body) = request.into_parts();
        let host = self.hosts.check(&parts.uri, &parts.headers)?;
        let (who, by_cookie) = self.who(&parts.headers)?;
        if by_cookie {
            same_site(&parts.method, &parts.headers, &host)?;
        }
        self.rates.take(who.name.as_str(), Instant::now())?;
        if route.listed.action == actions::Work::WORD {
            self.certified(parts.extensions.get())?;
        }
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let raw = Raw {
            params: params.iter().map(own).collect(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            headers: parts.headers,
            body,
        };
        (route.handler)(self.clone(), who, raw).await
    }

    /// Workers show a certificate, if that was said.
    fn certified(&self, certified: Option<&Certified>) -> Result<(), Problem> {
        let asks = self.tls.as_ref().is_some_and(Tls::asks_workers);
        match asks && !certified.is_some_and(|certified| certified.0) {
            true => {
                let text = "workers show a certificate here; a token alone is not enough";
                Err(Problem::new(Code::Forbidden, text))
            }
            false => Ok(()),
        }
    }

    /// Who sends this, and whether a cookie says so.
    fn who(&self, headers: &HeaderMap) -> Result<(Arc<Who>, bool), Problem> {
        let now = self.client.now();
        let nobody = || self.unknown("send a token: `Authorization: Bearer roundel_...`");
        let mut said = headers.get_all(header::AUTHORIZATION).iter();
        let found = match (said.next(), said.next()) {
            (Some(said), None) => {
                let secret = said
                    .to_str()
                    .ok()
                    .and_then(|said| said.strip_prefix("Bearer "));
                let tokens = self.tokens.as_ref().zip(secret);
                tokens.and_then(|(tokens, secret)| tokens.holder(&hash(secret), now))
            }
            (Some(_), Some(_)) => None,
            (None, _) => {
                let secret = cookie(headers).ok_or_else(nobody)?;
                let who = self.sessions.holder(secret, now);
                let known = |who: &Arc<Who>| {
                    let tokens = self.tokens.as_ref();
                    who.local || tokens.is_some_and(|tokens| tokens.knows(who, now))
                };
                return who.filter(known).map(|who| (who, true)).ok_or_else(nobody);
            }
        };
        found.map(|who| (who, false)).ok_or_else(nobody)
    }

    /// Somebody whom nobody knows, unless they try too often.
    pub(crate) fn unknown(&self, text: &str) -> Problem {
        match self.rates.take("", Instant::now()) {
            Ok(()) => Problem::new(Code::Unauthenticated, text),
            Err(problem) => problem,
        }
    }

    /// A problem that is found before it is known what is asked for.
    pub(crate) fn refuse(&self, problem: Problem) -> Response {
        seal(problem.into_response(), self.behind_tls)
    }
}

/// A handler that asks for no token: those that are named in the router, and no others.
fn open<F, Fut>(
    server: &Arc<Shared>,
    handler: F,
) -> impl Fn(Request) -> Fut + Clone + Send + Sync + 'static
where
    F: Fn(Arc<Shared>, Request) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response> + Send + 'static,
{
    let server = server.clone();
    move |request| handler(server.clone(), request)
}

async fn healthy(server: Arc<Shared>, request: Request) -> Response {
    match server.hosts.check(request.uri(), request.headers()) {
        Ok(_) => seal("ok\n".into_response(), server.behind_tls),
        Err(problem) => server.refuse(problem),
    }
}

async fn is_ready(server: Arc<Shared>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    if let Err(problem) = server.hosts.check(&parts.uri, &parts.headers) {
        return server.refuse(problem);
    }
    match server.ready.look(&server.client).await {
        Ok(()) => seal("ready\n".into_response(), server.behind_tls),
        Err(problem) => server.refuse(problem),
    }
}

/// The secret in the cookie.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(header::COOKIE).iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';'));
    let mut named = pairs.filter_map(|pair| pair.trim().split_once('='));
    named
        .find(|(name, _)| *name == COOKIE)
        .map(|(_, value)| value)
}
