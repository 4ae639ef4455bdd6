//! Several applications in one server, of WSGI, ASGI or both, as one [`Interface`].
//!
//! ```text
//!   MountedRequests::route   request head ──▶ which application, and whether it is called in a thread
//!   MountedRequests::begin   its environ or its scope, with the mount's path
//!   Mounted                  passes each call on to the interface of its application
//! ```
//!
//! If any application is an ASGI application, a loop hosts the engine and calls the ASGI applications. A WSGI
//! application would block the loop, so the host calls it in threads beside the loop ([`Route::is_threaded`]).

use crate::asgi::{self, Asgi};
use crate::interface::{
    Answer, Exchange, ExchangeHost, Handles, Input, Interface, Opening, Remote, RequestObject, Requests, Route, Summary,
};
use crate::mounts::{Mounts, is_at};
use crate::object::Object;
use crate::wsgi::Wsgi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::sync::Weak;
use wire::message::RequestHead;

/// One of the mounted applications.
pub(crate) enum Application {
    Wsgi(Wsgi),
    Asgi(Asgi),
}

/// The mounted applications as one interface.
pub(crate) struct Mounted(Box<[Application]>);

/// The factories of environs and scopes, and the mounts that select one of them.
pub(crate) struct MountedRequests {
    mounts: Mounts,
    /// The mount's path of each application, and true if it is WSGI. The last application gets the requests that no
    /// mount matches.
    places: Box<[(Box<str>, bool)]>,
    /// True if a loop hosts the engine.
    has_loop: bool,
    environs: <Wsgi as Interface>::Requests,
    scopes: <Asgi as Interface>::Requests,
}

/// The handles of one call, with the index of its application.
pub(crate) enum MountedHandles {
    Wsgi(usize, <Wsgi as Interface>::Handles),
    Asgi(usize, <Asgi as Interface>::Handles),
}

/// The data that both interfaces keep with a connection.
#[derive(Default)]
pub(crate) struct MountedConnection {
    environs: <<Wsgi as Interface>::Requests as Requests>::Connection,
    scopes: <<Asgi as Interface>::Requests as Requests>::Connection,
}

impl Mounted {
    pub(crate) fn new(applications: Vec<Application>) -> Self {
        Self(applications.into())
    }

    fn asgi(&self, index: usize) -> &Asgi {
        match &self.0[index] {
            Application::Asgi(asgi) => asgi,
            Application::Wsgi(_) => unreachable!("handles are given back where they were taken"),
        }
    }

    fn wsgi(&self, index: usize) -> &Wsgi {
        match &self.0[index] {
            Application::Wsgi(wsgi) => wsgi,
            Application::Asgi(_) => unreachable!("handles are given back where they were taken"),
        }
    }

    fn each_asgi(&self) -> impl Iterator<Item = &Asgi> {
        self.0.iter().filter_map(|application| match application {
            Application::Asgi(asgi) => Some(asgi),
            Application::Wsgi(_) => None,
        })
    }
}

impl Interface for Mounted {
    type Requests = MountedRequests;
    type Handles = MountedHandles;
    type Body = <Wsgi as Interface>::Body;

    fn take_handles(&self, py: Python<'_>, route: Route, host: &Weak<dyn ExchangeHost>) -> PyResult<MountedHandles> {
        let index = route.application;
        Ok(match &self.0[index] {
            Application::Wsgi(wsgi) => MountedHandles::Wsgi(index, wsgi.take_handles(py, route, host)?),
            Application::Asgi(asgi) => MountedHandles::Asgi(index, asgi.take_handles(py, route, host)?),
        })
    }

    /// Handles of WSGI applications are interchangeable; those of ASGI belong to one application.
    fn turn_handles(&self, handles: &mut MountedHandles, route: Route) -> bool {
        match (handles, &self.0[route.application]) {
            (MountedHandles::Wsgi(index, _), Application::Wsgi(_)) => {
                *index = route.application;
                true
            }
            (MountedHandles::Asgi(index, _), _) => *index == route.application,
            (MountedHandles::Wsgi(..), Application::Asgi(_)) => false,
        }
    }

    fn return_handles(&self, py: Python<'_>, handles: MountedHandles) {
        match handles {
            MountedHandles::Wsgi(index, handles) => self.wsgi(index).return_handles(py, handles),
            MountedHandles::Asgi(index, handles) => self.asgi(index).return_handles(py, handles),
        }
    }

    fn prepare(
        &self,
        py: Python<'_>,
        request: &Object,
        handles: &MountedHandles,
        input: Input,
    ) -> PyResult<Option<Object>> {
        match handles {
            MountedHandles::Wsgi(index, handles) => self.wsgi(*index).prepare(py, request, handles, input),
            MountedHandles::Asgi(index, handles) => self.asgi(*index).prepare(py, request, handles, input),
        }
    }

    fn call(&self, py: Python<'_>, request: &Object, handles: &MountedHandles) -> PyResult<Answer<Self::Body>> {
        match handles {
            MountedHandles::Wsgi(index, handles) => self.wsgi(*index).call(py, request, handles),
            MountedHandles::Asgi(index, handles) => Ok(match self.asgi(*index).call(py, request, handles)? {
                Answer::Whole(chunk) => Answer::Whole(chunk),
                Answer::Body(never) => match never {},
                Answer::Suspended(waiter) => Answer::Suspended(waiter),
                Answer::Returned(result) => Answer::Returned(result),
            }),
        }
    }

    fn wake(&self, py: Python<'_>, waiter: &Py<PyAny>, is_waiting: bool) -> PyResult<()> {
        if let Some(woken) = asgi::wake(py, waiter, is_waiting) {
            return woken;
        }
        // This waiter is an object with `set`, on which a thread beside the loop waits.
        if let Err(error) = waiter.call_method0(py, intern!(py, "set")) {
            error.write_unraisable(py, Some(waiter.bind(py)));
        }
        Ok(())
    }

    fn before_wait(&self, py: Python<'_>) {
        self.each_asgi().for_each(|asgi| asgi.before_wait(py));
    }

    fn end(&self, py: Python<'_>) {
        self.each_asgi().for_each(|asgi| asgi.end(py));
    }

    /// Only WSGI applications have response bodies that are iterated over.
    fn unstarted() -> PyErr {
        Wsgi::unstarted()
    }

    /// Only calls of ASGI applications can end before their responses.
    fn incomplete() -> PyErr {
        Asgi::incomplete()
    }

    fn says_websocket_is_closed(py: Python<'_>, error: &PyErr) -> bool {
        Wsgi::says_websocket_is_closed(py, error)
    }

    fn summary(py: Python<'_>, request: &Object) -> Summary {
        let is_scope = request.bind(py).cast::<PyDict>().is_ok_and(|dict| dict.contains("asgi").unwrap_or(false));
        if is_scope { Asgi::summary(py, request) } else { Wsgi::summary(py, request) }
    }
}

impl Handles for MountedHandles {
    fn exchange(&self) -> &Exchange {
        match self {
            Self::Wsgi(_, handles) => handles.exchange(),
            Self::Asgi(_, handles) => handles.exchange(),
        }
    }

    fn is_shared(&self) -> bool {
        match self {
            Self::Wsgi(_, handles) => handles.is_shared(),
            Self::Asgi(_, handles) => handles.is_shared(),
        }
    }

    fn may_block(&self) -> bool {
        matches!(self, Self::Wsgi(..))
    }
}

impl MountedRequests {
    /// Creates the factories. `places` has the host, the path, and true for WSGI, of each application in order.
    pub(crate) fn new(
        places: &[(String, String, bool)],
        environs: <Wsgi as Interface>::Requests,
        scopes: <Asgi as Interface>::Requests,
    ) -> Self {
        Self {
            mounts: Mounts::new(places.iter().map(|(host, path, _)| (&host[..], &path[..]))),
            has_loop: places.iter().any(|(_, _, is_wsgi)| !is_wsgi),
            places: places.iter().map(|(_, path, is_wsgi)| (path.as_str().into(), *is_wsgi)).collect(),
            environs,
            scopes,
        }
    }

    /// Makes the request object with the function for the interface of its application, and moves the mount's path.
    fn begin_there(
        &mut self,
        py: Python<'_>,
        route: Route,
        begin_environ: impl FnOnce(&mut <Wsgi as Interface>::Requests) -> Option<RequestObject>,
        begin_scope: impl FnOnce(&mut <Asgi as Interface>::Requests) -> Option<RequestObject>,
    ) -> Option<RequestObject> {
        let (path, is_wsgi) = &self.places[route.application];
        let request = if *is_wsgi { begin_environ(&mut self.environs) } else { begin_scope(&mut self.scopes) }?;
        if !path.is_empty() {
            let mounted = if *is_wsgi { mount_environ(py, &request, path) } else { mount_scope(py, &request, path) };
            mounted.map_err(|error| error.restore(py)).ok()?;
        }
        Some(request)
    }
}

impl Requests for MountedRequests {
    type Connection = MountedConnection;

    fn route(&self, head: &RequestHead<'_>) -> Route {
        let found = if head.is_cgi {
            let (script_name, path_info) = self.environs.split_path(head);
            self.mounts.of_cgi(head, &script_name, &path_info)
        } else {
            self.mounts.of(head)
        };
        let application = found.unwrap_or(self.places.len() - 1);
        let is_wsgi = self.places[application].1;
        Route {
            application,
            is_threaded: is_wsgi && self.has_loop,
            streams_bodies: !is_wsgi,
            limits_handshakes: is_wsgi,
        }
    }

    fn begin(
        &mut self,
        py: Python<'_>,
        head: &RequestHead<'_>,
        route: Route,
        remote: &Remote,
        connection: &mut MountedConnection,
    ) -> Option<RequestObject> {
        let MountedConnection { environs: of_environs, scopes: of_scopes } = connection;
        self.begin_there(
            py,
            route,
            |environs| environs.begin(py, head, route, remote, of_environs),
            |scopes| scopes.begin(py, head, route, remote, of_scopes),
        )
    }

    fn begin_websocket(
        &mut self,
        py: Python<'_>,
        head: &RequestHead<'_>,
        route: Route,
        opening: &Opening<'_>,
        remote: &Remote,
        connection: &mut MountedConnection,
    ) -> Option<RequestObject> {
        let MountedConnection { environs: of_environs, scopes: of_scopes } = connection;
        self.begin_there(
            py,
            route,
            |environs| environs.begin_websocket(py, head, route, opening, remote, of_environs),
            |scopes| scopes.begin_websocket(py, head, route, opening, remote, of_scopes),
        )
    }
}

/// Moves the mount's path from `PATH_INFO` to the end of `SCRIPT_NAME` (PEP 3333). If the web server has moved it
/// already ([`Mounts::of_cgi`]), splits the two anew. Both are UTF-8 bytes, decoded as Latin-1.
fn mount_environ(py: Python<'_>, environ: &Object, path: &str) -> PyResult<()> {
    let environ = environ.bind(py);
    let environ = environ.cast::<PyDict>()?;
    let text = |key: &Bound<'_, PyString>| match environ.get_item(key)? {
        Some(value) => value.extract::<String>(),
        None => Ok(String::new()),
    };
    let (script_name, path_info) = (intern!(py, "SCRIPT_NAME"), intern!(py, "PATH_INFO"));
    let prefix: String = path.bytes().map(char::from).collect();
    let (mut mounted_at, mut rest) = (text(script_name)?, text(path_info)?);
    if !is_at(prefix.as_bytes(), rest.as_bytes()) {
        rest.insert_str(0, &std::mem::take(&mut mounted_at));
        debug_assert!(is_at(prefix.as_bytes(), rest.as_bytes()), "{prefix} is the place of {rest}");
    }
    mounted_at.push_str(&prefix);
    rest.drain(..prefix.len());
    environ.set_item(script_name, mounted_at)?;
    environ.set_item(path_info, rest)
}

/// Appends the mount's path to `root_path`; `path` still contains it (ASGI, HTTP, "HTTP Connection Scope").
fn mount_scope(py: Python<'_>, scope: &Object, path: &str) -> PyResult<()> {
    let scope = scope.bind(py);
    let scope = scope.cast::<PyDict>()?;
    let root_path = match scope.get_item(intern!(py, "root_path"))? {
        Some(root_path) => root_path.extract::<String>()?,
        None => String::new(),
    };
    scope.set_item(intern!(py, "root_path"), root_path + path)
}
