//! The interface by which the caller sends requests to the authority.

use crate::error::AcmeError;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use instant_acme::{BodyWrapper, BytesResponse, HttpClient};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A blocking HTTP client.
pub trait Http: Send + Sync + 'static {
    /// Sends a request and returns its response, whatever the status.
    ///
    /// # Errors
    /// One line that explains why there is no response.
    fn send(&self, request: &Request) -> Result<Response, String>;
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The complete URL.
    pub url: String,
    /// The fields.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The fields.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// The HTTP client for instant-acme, which forwards requests to [`Http`].
pub(crate) struct Client(pub(crate) Arc<dyn Http>);

impl HttpClient for Client {
    fn request(
        &self,
        request: http::Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let http = Arc::clone(&self.0);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let Ok(body) = body.collect().await;
            let fields = parts.headers.iter();
            let request = Request {
                method: parts.method.to_string(),
                url: parts.uri.to_string(),
                fields: fields.map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect(),
                body: body.to_bytes().to_vec(),
            };
            let response = http.send(&request).map_err(|error| other(AcmeError::new(error)))?;
            let mut builder = http::Response::builder().status(response.status);
            for (name, value) in &response.fields {
                builder = builder.header(name, value);
            }
            let response = builder.body(Full::new(Bytes::from(response.body)));
            response.map(BytesResponse::from).map_err(other)
        })
    }
}

/// Returns the result of a future that never waits, because [`Http::send`] blocks until the response has arrived.
///
/// # Panics
/// If the future waits. The futures in this crate do not: none of them uses a timer of instant-acme.
pub(crate) fn complete<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("nothing here waits"),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> instant_acme::Error {
    instant_acme::Error::Other(Box::new(error))
}
