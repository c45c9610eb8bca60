//! The admin API of a running host, as commands ask it.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::exit::Failure;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than the API's own bounds, so that it says itself what took so long.
const LOOK_TIMEOUT: Duration = Duration::from_secs(15);
const CHANGE_TIMEOUT: Duration = Duration::from_secs(180);
/// Far more than any answer has.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The admin API at an address. Each question has a connection of its own.
#[derive(Debug)]
pub(crate) struct AdminClient<'a> {
    address: &'a str,
}

/// What it answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
}

impl<'a> AdminClient<'a> {
    pub(crate) const fn new(address: &'a str) -> Self {
        Self { address }
    }

    /// What is at `path`.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.ask(Method::GET, path, LOOK_TIMEOUT).await?.into_body()
    }

    /// Asks for a change, whatever becomes of it.
    pub(crate) async fn post(&self, path: &str) -> Result<Answer, Failure> {
        self.ask(Method::POST, path, CHANGE_TIMEOUT).await
    }

    /// Asks for something that comes in pieces, for at most `timeout` in all, and hands on each as it comes. An error of
    /// `take` ends it.
    pub(crate) async fn post_and_receive(
        &self,
        path: &str,
        body: &Value,
        timeout: Duration,
        mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let receiving = async {
            let mut taken = Ok(());
            let answered = self.exchange(Method::POST, path, body.to_string().into(), async |response| {
                if !response.status().is_success() {
                    return collect(response).await.map(Some);
                }
                let mut body = response.into_body();
                while let Some(frame) = body.frame().await {
                    if let Ok(data) = frame?.into_data() {
                        taken = take(&data);
                    }
                    if taken.is_err() {
                        break;
                    }
                }
                Ok(None)
            });
            let answered = answered.await;
            taken?;
            match answered.map_err(Failure::Environment)? {
                None => Ok(()),
                Some((status, bytes)) => self.answer(status, &bytes)?.into_body().map(|_| ()),
            }
        };
        match tokio::time::timeout(timeout, receiving).await {
            Ok(received) => received,
            Err(_elapsed) => Err(self.late(timeout)),
        }
    }

    async fn ask(&self, method: Method, path: &str, timeout: Duration) -> Result<Answer, Failure> {
        let asking = tokio::time::timeout(timeout, self.exchange(method, path, Bytes::new(), collect));
        let Ok(exchanged) = asking.await else { return Err(self.late(timeout)) };
        let (status, bytes) = exchanged.map_err(Failure::Environment)?;
        self.answer(status, &bytes)
    }

    fn late(&self, timeout: Duration) -> Failure {
        let (address, seconds) = (self.address, timeout.as_secs());
        Failure::Environment(anyhow!("the host at {address} has not answered within {seconds} s"))
    }

    fn answer(&self, status: StatusCode, bytes: &[u8]) -> Result<Answer, Failure> {
        match serde_json::from_slice(bytes) {
            Ok(body) => Ok(Answer { status, body }),
            Err(_) => Err(Failure::Environment(anyhow!(
                "what answers at {} is not the admin API of a tidegate host (HTTP status {status}); \
                 give its address with --admin",
                self.address
            ))),
        }
    }

    async fn exchange<T>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        receive: impl AsyncFnOnce(Response<Incoming>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let address = self.address;
        let cut_off = || format!("the host at {address} did not answer to the end");
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, address)
            .body(Full::new(body))
            .with_context(|| format!("`{path}` cannot be asked for"))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(connect(address).await?)).await.with_context(cut_off)?;
        // Both ends of the connection are driven here, so that nothing outlives the question.
        let answer = async { receive(sender.send_request(request).await?).await };
        tokio::pin!(answer, connection);
        tokio::select! {
            answered = &mut answer => answered,
            _ended = &mut connection => answer.await,
        }
        .with_context(cut_off)
    }
}

/// An answer that comes in one piece.
async fn collect(response: Response<Incoming>) -> anyhow::Result<(StatusCode, Bytes)> {
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow!("{error}"))?;
    Ok((status, body.to_bytes()))
}

impl Answer {
    /// The body of an answer that says that all went well.
    pub(crate) fn into_body(self) -> Result<Value, Failure> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        let told = self.body["error"].as_str().unwrap_or("it did not say why");
        let error = anyhow!("{told}");
        Err(match self.status {
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => Failure::Config(error),
            StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE => Failure::Runtime(error),
            status => {
                Failure::Environment(error.context(format!("the host answers with HTTP status {status}")))
            }
        })
    }
}

async fn connect(address: &str) -> anyhow::Result<TcpStream> {
    let told = || {
        format!(
            "no tidegate host answers at {address}; is `tidegate run` running there? Its log says where its admin \
             API listens, and --admin or TIDEGATE_ADMIN names another address"
        )
    };
    match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
        Ok(connected) => connected.with_context(told),
        Err(_elapsed) => {
            Err(anyhow!("not connected within {} s", CONNECT_TIMEOUT.as_secs())).with_context(told)
        }
    }
}

/// A name as part of a path.
pub(crate) fn segment(name: &str) -> String {
    const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(name, UNRESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_one_segment_of_a_path() {
        assert_eq!(segment("fair-share_2.0~a"), "fair-share_2.0~a");
        assert_eq!(segment("a/b?c d%é"), "a%2Fb%3Fc%20d%25%C3%A9");
    }
}
