//! Connections to brokers: opened, encrypted, agreed on versions, authenticated; then one call after the other.
//!
//! A [`Connector`] holds what all connections have in common. A [`Connection`] belongs to one member and one broker: a
//! broker ties a share session to the connection that opened it. There is no task behind it; whoever calls drives it.
//!
//! Answers are matched with questions by their order. So a call that failed or was given up before its answer came leaves
//! a connection of no use; it says so, and takes no further call.

mod address;
mod bootstrap;
mod channel;
mod error;
mod greet;
mod options;
mod request;
mod stream;
mod versions;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use address::{AddressError, BootstrapServers, BrokerAddress};
pub use bootstrap::BootstrapError;
use channel::{Awaited, Channel, ExchangeError, Outgoing};
use error::Asked;
pub use error::{CallError, CallProblem, Fault, OpenError, OpenProblem, Phase, TlsFault};
use greet::{Authenticated, Refusal};
use kafka_wire_core::{StrBytes, VersionRange};
pub use options::{ClientOptions, Deadlines, OptionNames, Sasl, Security};
pub use request::{Answer, Request};
use stream::{Budget, Stream};
use tidegate_connector::secret::{Purpose, Secret};
use tidegate_connector::tls::TlsError;
use tokio::time::{self, Instant};
use tokio_rustls::TlsConnector;
pub use versions::{VersionError, Versions};
use versions::{api_name, ours};

/// How long the other side may take to hear that the connection ends.
const CLOSE_DEADLINE: Duration = Duration::from_secs(1);
/// The part of its lifetime after which a session is renewed, in percent: between these two, so that connections that were
/// opened together do not all renew at once. Java's client does it in the same window.
const RENEWAL_PERCENT: (u32, u32) = (85, 95);
/// Brokers refuse to renew a session more often than once in a second.
const RENEWAL_WAIT_MIN: Duration = Duration::from_millis(1_100);

/// What all connections of one client have in common. Clones are cheap.
#[derive(Clone)]
pub struct Connector(Arc<Common>);

struct Common {
    options: ClientOptions,
    tls: Option<TlsConnector>,
    client_id: StrBytes,
}

/// One connection to one broker.
pub struct Connection {
    connector: Connector,
    address: BrokerAddress,
    channel: Channel,
    versions: Versions,
    state: State,
    /// When the client must prove again who it is.
    renewal_due_at: Option<Instant>,
    /// Whether a call was ever answered.
    has_answered: bool,
}

/// Whether the next call can be made.
#[derive(Debug)]
enum State {
    Ready,
    /// A call is on its way, or was given up on its way.
    Calling(&'static str),
    /// No call can be made any more, for this reason.
    Ended(Box<str>),
}

impl Connector {
    /// Reads the files that the options name for TLS; opens no connection.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn new(options: ClientOptions) -> Result<Self, TlsError> {
        let tls = match &options.security.tls {
            Some(tls) => Some(TlsConnector::from(Arc::new(tls.config(&options.names.tls)?))),
            None => None,
        };
        let client_id = StrBytes::from(&*options.client_id);
        Ok(Self(Arc::new(Common { options, tls, client_id })))
    }

    /// Opens a connection and makes it ready for calls.
    ///
    /// # Errors
    /// When that fails, within the deadlines of the options.
    pub async fn open(&self, address: &BrokerAddress) -> Result<Connection, OpenError> {
        let Common { options, .. } = &*self.0;
        let budget = Budget::new(options.deadlines.open);
        let mut opened = self.try_open(address, budget).await;
        if let Err(Refusal { secret: Some(refused), .. }) = &opened
            && self.has_another_secret(address, refused, budget).await
        {
            // Whoever refuses a secret hangs up, so it is a new connection.
            opened = self.try_open(address, budget).await;
        }
        opened.map_err(|refusal| OpenError::new(address.clone(), refusal.problem, self.asked()))
    }

    async fn try_open(&self, address: &BrokerAddress, budget: Budget) -> Result<Connection, Refusal> {
        let Common { options, tls, client_id } = &*self.0;
        let deadlines = &options.deadlines;
        let stream = Stream::open(address, tls.as_ref(), deadlines, budget).await?;
        let mut channel = Channel::new(stream, client_id.clone());
        let versions = budget.run(Phase::Versions, deadlines.greeting, greet::versions(&mut channel)).await?;
        versions.check_share_groups().map_err(OpenProblem::Version)?;
        let mut connection = Connection {
            connector: self.clone(),
            address: address.clone(),
            channel,
            versions,
            state: State::Ready,
            renewal_due_at: None,
            has_answered: false,
        };
        connection.authenticate(budget).await?;
        Ok(connection)
    }

    async fn has_another_secret(
        &self,
        address: &BrokerAddress,
        refused: &Arc<Secret>,
        budget: Budget,
    ) -> bool {
        let Some(sasl) = &self.0.options.security.sasl else { return false };
        let endpoint = address.to_string();
        let renewal = async { Ok(sasl.secrets.renew(&endpoint, Purpose::Consume, refused).await) };
        budget.run(Phase::Sasl, self.0.options.deadlines.sasl, renewal).await.unwrap_or(false)
    }

    fn asked(&self) -> Asked {
        let ClientOptions { security, names, .. } = &self.0.options;
        Asked { names, protocol: security.protocol() }
    }
}

impl Connection {
    /// Asks in the newest version that both sides speak, and waits for the answer for as long as `deadline`. When the
    /// client must prove anew who it is, it does that before, within the deadline for authentication.
    ///
    /// # Errors
    /// When there is no answer. Unless [`CallError::leaves_the_connection`], the connection is of no use afterwards; so it
    /// is when the returned future is dropped before its end.
    pub async fn call<R: Request>(
        &mut self,
        request: &R,
        deadline: Duration,
    ) -> Result<Answer<R::Response>, CallError> {
        self.call_within(request, ours::<R>(), deadline).await
    }

    /// As [`call`](Self::call), in a version among `ours`.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn call_within<R: Request>(
        &mut self,
        request: &R,
        ours: VersionRange,
        deadline: Duration,
    ) -> Result<Answer<R::Response>, CallError> {
        let api = api_name::<R>();
        let answered = self.try_call(request, api, ours, deadline).await;
        answered.map_err(|problem| {
            let error = CallError::new(self.address.clone(), api, problem);
            if !error.leaves_the_connection() && !matches!(error.problem(), CallProblem::Ended(_)) {
                self.state = State::Ended(error.to_string().into());
            }
            error
        })
    }

    /// Whom this connection leads to.
    #[must_use]
    pub const fn address(&self) -> &BrokerAddress {
        &self.address
    }

    /// What the broker speaks.
    #[must_use]
    pub const fn versions(&self) -> &Versions {
        &self.versions
    }

    /// Whether calls can still be made, as far as is known: a broker that went away is noticed by the next call.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    /// Takes leave of the broker. To drop a connection ends it as well, without a word.
    pub async fn close(mut self) {
        // Whether it hears that changes nothing for anybody.
        let _ = time::timeout(CLOSE_DEADLINE, self.channel.shutdown()).await;
    }

    async fn try_call<R: Request>(
        &mut self,
        request: &R,
        api: &'static str,
        ours: VersionRange,
        deadline: Duration,
    ) -> Result<Answer<R::Response>, CallProblem> {
        match &self.state {
            State::Ready => {}
            State::Calling(api) => {
                return Err(CallProblem::Ended(
                    format!("a call of {api} was given up before its answer came").into(),
                ));
            }
            State::Ended(reason) => return Err(CallProblem::Ended(reason.clone())),
        }
        let version = self.versions.best::<R>(ours).map_err(CallProblem::Version)?;
        let outgoing = self.channel.encode(request, version).map_err(CallProblem::Request)?;
        self.state = State::Calling(api);
        self.renew_session().await?;
        let sent_bytes = outgoing.bytes();
        let bytes_max = self.connector.0.options.answer_bytes_max;
        let exchange = exchange::<R>(&mut self.channel, outgoing, bytes_max);
        let (body, bytes) = match time::timeout(deadline, exchange).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(self.explain(error)),
            Err(_) => return Err(CallProblem::TimedOut(deadline)),
        };
        self.state = State::Ready;
        self.has_answered = true;
        Ok(Answer::of::<R>(body, version.value(), sent_bytes, bytes))
    }

    /// Proves once more who the client is, when it is time.
    async fn renew_session(&mut self) -> Result<(), CallProblem> {
        if self.renewal_due_at.is_none_or(|due| Instant::now() < due) {
            return Ok(());
        }
        let budget = Budget::new(self.connector.0.options.deadlines.sasl);
        self.authenticate(budget).await.map_err(|refusal| {
            let asked = self.connector.asked();
            let error = OpenError::new(self.address.clone(), refusal.problem, asked);
            CallProblem::Authentication(Box::new(error))
        })
    }

    async fn authenticate(&mut self, budget: Budget) -> Result<(), Refusal> {
        let ClientOptions { security, deadlines, .. } = &self.connector.0.options;
        let Some(sasl) = &security.sasl else { return Ok(()) };
        let endpoint = self.address.to_string();
        let begun_at = Instant::now();
        // The refused secret must come through as well, so it rides along with success.
        let proof =
            async { Ok(greet::authenticate(&mut self.channel, &self.versions, sasl, &endpoint).await) };
        let Authenticated { lifetime } = budget.run(Phase::Sasl, deadlines.sasl, proof).await??;
        self.renewal_due_at = lifetime.map(|lifetime| begun_at + renewal_wait(lifetime, random_byte()));
        Ok(())
    }

    fn explain(&self, error: ExchangeError) -> CallProblem {
        match error {
            ExchangeError::Closed => {
                let names = self.connector.0.options.names;
                // A listener that wants SASL takes the question for versions without it, and nothing else.
                let is_suspect = !self.has_answered && self.connector.0.options.security.sasl.is_none();
                let advice = is_suspect.then(|| {
                    format!("; if its listener wants SASL, say so with `{}`", names.security_protocol).into()
                });
                CallProblem::Closed { advice }
            }
            ExchangeError::Broken(error) => CallProblem::Broken(error.to_string().into()),
            ExchangeError::Tls(error) => CallProblem::Broken(error.to_string().into()),
            ExchangeError::Strange(_, error) | ExchangeError::Answer(error) => CallProblem::Answer(error),
        }
    }
}

async fn exchange<R: Request>(
    channel: &mut Channel,
    outgoing: Outgoing,
    bytes_max: usize,
) -> Result<(R::Response, usize), ExchangeError> {
    let awaited: Awaited = channel.send(outgoing).await?;
    channel.receive::<R>(awaited, bytes_max).await
}

/// When to renew a session that lasts for `lifetime`; `random` spreads it over the window.
fn renewal_wait(lifetime: Duration, random: u8) -> Duration {
    let (from, to) = RENEWAL_PERCENT;
    let percent = f64::from(from) + f64::from(to - from) * f64::from(random) / f64::from(u8::MAX);
    lifetime.mul_f64(percent / 100.0).max(RENEWAL_WAIT_MIN)
}

/// Without random bytes, all connections renew at the beginning of the window.
fn random_byte() -> u8 {
    let mut byte = [0];
    getrandom::fill(&mut byte).map_or(0, |()| byte[0])
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connector").field(&self.0.options).finish()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("address", &self.address)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
