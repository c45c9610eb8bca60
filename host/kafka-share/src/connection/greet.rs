//! The first questions on a connection: which versions, and who is there.

use std::sync::Arc;
use std::time::Duration;

use kafka_wire::{
    ApiVersionsRequest, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
};
use kafka_wire_core::{ApiVersion, Bytes, StrBytes, VersionRange};
use secrecy::{ExposeSecret as _, SecretSlice};
use tidegate_connector::secret::{Purpose, Secret};

use super::channel::{Channel, ExchangeError};
use super::error::{OpenProblem, Phase};
use super::options::Sasl;
use super::versions::Versions;
use crate::error_code::ErrorCode;
use crate::sasl::{Exchange, Nonce, Step, told};

/// The longest answer to these questions, in bytes; a broker's list of versions has some 600.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The version of the question for versions that is asked first. The next one names the cluster that is meant.
const VERSIONS_FIRST: ApiVersion = ApiVersion::new(4);
/// Most questions for versions: the first, the newest that the broker knows, and the oldest of all.
const VERSIONS_ATTEMPTS_MAX: u32 = 3;
/// What brokers may call this software in their metrics.
const SOFTWARE: (&str, &str) = ("tidegate", env!("CARGO_PKG_VERSION"));
/// From this version on, the exchange is carried by requests; before, it went over the bare connection.
const HANDSHAKE: ApiVersion = ApiVersion::new(1);
/// From version 1 on, the answer says how long the session lasts.
const AUTHENTICATE: VersionRange = VersionRange::new(0, 2);
/// Most messages of one exchange; SCRAM has two.
const MESSAGES_MAX: u32 = 4;

/// What the broker speaks.
pub(super) async fn versions(channel: &mut Channel) -> Result<Versions, OpenProblem> {
    const PHASE: Phase = Phase::Versions;
    let mut asked = VERSIONS_FIRST;
    let mut code = ErrorCode::NONE;
    for _ in 0..VERSIONS_ATTEMPTS_MAX {
        let mut request = ApiVersionsRequest::default();
        if asked.value() >= 3 {
            request.client_software_name = StrBytes::from(SOFTWARE.0);
            request.client_software_version = StrBytes::from(SOFTWARE.1);
        }
        let outgoing = channel.encode(&request, asked).map_err(|_| unwritten(PHASE))?;
        let awaited = channel.send(outgoing).await.map_err(|error| error.during(PHASE))?;
        let answer = channel.receive_versions(awaited, ANSWER_BYTES_MAX).await;
        let answer = answer.map_err(|error| error.during(PHASE))?;
        code = ErrorCode(answer.error_code);
        match code {
            ErrorCode::NONE => return Ok(Versions::of(&answer)),
            ErrorCode::UNSUPPORTED_VERSION => {
                let older = VersionRange::new(0, (asked.value() - 1).max(0));
                let known = Versions::of(&answer).best::<ApiVersionsRequest>(older);
                asked = known.unwrap_or(ApiVersion::new(0));
            }
            _ => break,
        }
    }
    Err(OpenProblem::Code { phase: PHASE, code })
}

/// The client has proved who it is.
pub(super) struct Authenticated {
    /// How long that lasts; `None` when for as long as the connection.
    pub(super) lifetime: Option<Duration>,
}

/// The client has not proved who it is.
pub(super) struct Refusal {
    pub(super) problem: OpenProblem,
    /// The secret that was refused, when it was.
    pub(super) secret: Option<Arc<Secret>>,
}

impl From<OpenProblem> for Refusal {
    fn from(problem: OpenProblem) -> Self {
        Self { problem, secret: None }
    }
}

/// Proves who the client is, on a new connection or once more on an old one. `endpoint` is what the secret is for.
pub(super) async fn authenticate(
    channel: &mut Channel,
    versions: &Versions,
    sasl: &Sasl,
    endpoint: &str,
) -> Result<Authenticated, Refusal> {
    let secret = sasl.secrets.first(endpoint, Purpose::Consume).await;
    let secret = secret.map_err(|error| OpenProblem::Secret { detail: error.detail })?;
    prove(channel, versions, sasl, &secret).await.map_err(|problem| {
        let is_refused = matches!(&problem, OpenProblem::Denied { .. });
        Refusal { problem, secret: is_refused.then_some(secret) }
    })
}

async fn prove(
    channel: &mut Channel,
    versions: &Versions,
    sasl: &Sasl,
    secret: &Secret,
) -> Result<Authenticated, OpenProblem> {
    let mut nonce = Nonce::default();
    getrandom::fill(&mut nonce).map_err(|error| OpenProblem::Random { reason: error.to_string().into() })?;
    let (mut exchange, mut message) =
        Exchange::start(sasl.mechanism, secret, &sasl.extensions, nonce).map_err(OpenProblem::Sasl)?;
    let version = versions.best::<SaslAuthenticateRequest>(AUTHENTICATE).map_err(OpenProblem::Version)?;
    agree(channel, versions, sasl).await?;
    for _ in 0..MESSAGES_MAX {
        let answer = say(channel, &message, version).await?;
        let code = ErrorCode(answer.error_code);
        if !code.is_ok() {
            return Err(OpenProblem::Denied {
                mechanism: sasl.mechanism,
                told: answer.error_message.map_or_else(|| code.to_string().into(), |text| told(&text)),
            });
        }
        match exchange.handle_answer(&answer.auth_bytes).map_err(OpenProblem::Sasl)? {
            Step::Send(next) => message = next,
            Step::Done => {
                let millis = u64::try_from(answer.session_lifetime_ms).ok().filter(|millis| *millis > 0);
                return Ok(Authenticated { lifetime: millis.map(Duration::from_millis) });
            }
        }
    }
    Err(unwritten(Phase::Sasl))
}

/// Agrees on the mechanism.
async fn agree(channel: &mut Channel, versions: &Versions, sasl: &Sasl) -> Result<(), OpenProblem> {
    const PHASE: Phase = Phase::Sasl;
    versions
        .best::<SaslHandshakeRequest>(VersionRange::new(HANDSHAKE.value(), HANDSHAKE.value()))
        .map_err(OpenProblem::Version)?;
    let mut request = SaslHandshakeRequest::default();
    request.mechanism = StrBytes::from(sasl.mechanism.name());
    let outgoing = channel.encode(&request, HANDSHAKE).map_err(|_| unwritten(PHASE))?;
    let awaited = channel.send(outgoing).await.map_err(|error| error.during(PHASE))?;
    let (answer, _) = channel
        .receive::<SaslHandshakeRequest>(awaited, ANSWER_BYTES_MAX)
        .await
        .map_err(|error| error.during(PHASE))?;
    match ErrorCode(answer.error_code) {
        ErrorCode::NONE => Ok(()),
        ErrorCode::UNSUPPORTED_SASL_MECHANISM => Err(OpenProblem::Mechanism {
            wanted: sasl.mechanism,
            offered: answer.mechanisms.iter().map(|name| told(name)).collect(),
        }),
        ErrorCode::ILLEGAL_SASL_STATE => Err(OpenProblem::NoSasl),
        code => Err(OpenProblem::Code { phase: PHASE, code }),
    }
}

async fn say(
    channel: &mut Channel,
    message: &SecretSlice<u8>,
    version: ApiVersion,
) -> Result<SaslAuthenticateResponse, OpenProblem> {
    const PHASE: Phase = Phase::Sasl;
    let mut request = SaslAuthenticateRequest::default();
    request.auth_bytes = Bytes::copy_from_slice(message.expose_secret());
    let outgoing = channel.encode(&request, version).map_err(|_| unwritten(PHASE))?;
    let awaited = channel.send(outgoing).await.map_err(|error| error.during(PHASE))?;
    let answer = channel.receive::<SaslAuthenticateRequest>(awaited, ANSWER_BYTES_MAX).await;
    answer.map(|(answer, _)| answer).map_err(|error| error.during(PHASE))
}

/// What ought not to be: the exchange went on and on, or one of these small requests could not be written.
const fn unwritten(phase: Phase) -> OpenProblem {
    OpenProblem::Code { phase, code: ErrorCode::INVALID_REQUEST }
}

impl ExchangeError {
    /// What it means in one of the first questions.
    fn during(self, phase: Phase) -> OpenProblem {
        match self {
            Self::Closed => OpenProblem::Closed { phase },
            Self::Broken(error) => OpenProblem::broken(phase, &error),
            Self::Tls(error) => OpenProblem::tls(&error),
            // An alert or a handshake, of the major version 3.
            Self::Strange([0x15 | 0x16, 3, ..], _) => OpenProblem::WantsTls,
            Self::Strange(head, _) if phase == Phase::Versions => {
                let hex = head.map(|byte| format!("{byte:02x}")).join(" ");
                OpenProblem::NotKafka {
                    begins: format!("the bytes {hex} (`{}`)", head.escape_ascii()).into(),
                }
            }
            Self::Strange(_, error) | Self::Answer(error) => OpenProblem::Answer { phase, error },
        }
    }
}
