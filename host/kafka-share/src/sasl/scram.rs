//! SCRAM (RFC 5802) without channel binding: both sides prove that they know the password, and neither sends it.

use std::fmt;
use std::str;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use pbkdf2::pbkdf2_hmac;
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use sha2::{Digest as _, Sha256, Sha512};

use super::{Mechanism, SaslError, Step, told};

/// The fewest iterations that RFC 7677 allows. It is also the default of Kafka's brokers.
pub(super) const ITERATIONS_MIN: u32 = 4_096;
/// The most that are done: a server must not be able to keep a processor busy for long. Kafka's own maximum is a quarter.
pub(super) const ITERATIONS_MAX: u32 = 65_536;

/// Random bytes that no exchange before has used.
pub(crate) type Nonce = [u8; 24];

/// No channel binding, nobody to act as: `n,,`, and the same in base64 as the proof repeats it.
const GS2_HEADER: &str = "n,,";
const BINDING: &str = "c=biws";

/// Which digest.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hash {
    Sha256,
    Sha512,
}

/// One exchange.
pub(crate) struct Scram {
    hash: Hash,
    state: State,
}

enum State {
    /// The first message is sent.
    First {
        /// It, without its header.
        bare: String,
        nonce: String,
        password: SecretString,
    },
    /// The proof is sent.
    Proved {
        server_key: Zeroizing<Vec<u8>>,
        auth_message: String,
    },
    Ended,
}

impl Scram {
    pub(super) fn start(
        hash: Hash,
        username: &str,
        password: &SecretString,
        nonce: Nonce,
    ) -> Result<(Self, SecretSlice<u8>), SaslError> {
        Self::with_nonce(hash, username, password, BASE64.encode(nonce))
    }

    /// `nonce` as it is sent.
    pub(super) fn with_nonce(
        hash: Hash,
        username: &str,
        password: &SecretString,
        nonce: String,
    ) -> Result<(Self, SecretSlice<u8>), SaslError> {
        if username.is_empty() {
            return Err(SaslError::Unsendable { part: "user name", problem: "is empty" });
        }
        let name = username.replace('=', "=3D").replace(',', "=2C");
        let bare = format!("n={name},r={nonce}");
        let message = SecretSlice::from([GS2_HEADER, &bare].concat().into_bytes());
        let state = State::First { bare, nonce, password: password.clone() };
        Ok((Self { hash, state }, message))
    }

    pub(super) fn step(&mut self, answer: &[u8]) -> Result<Step, SaslError> {
        let hash = self.hash;
        let answer = str::from_utf8(answer).map_err(|_| hash.malformed("it is no UTF-8"))?;
        match std::mem::replace(&mut self.state, State::Ended) {
            State::First { bare, nonce, password } => {
                let challenge = Challenge::parse(hash, answer, &nonce)?;
                let (message, next) = prove(hash, &bare, answer, &challenge, &password);
                self.state = next;
                Ok(Step::Send(message))
            }
            State::Proved { server_key, auth_message } => {
                let signature = hash.final_signature(answer)?;
                if hash.verify(&server_key, auth_message.as_bytes(), &signature) {
                    Ok(Step::Done)
                } else {
                    Err(SaslError::Impostor)
                }
            }
            State::Ended => Err(hash.malformed("the exchange had ended")),
        }
    }
}

impl fmt::Debug for Scram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scram").field("hash", &self.hash).finish_non_exhaustive()
    }
}

/// What the server answered to the first message.
struct Challenge {
    nonce: String,
    salt: Vec<u8>,
    iterations: u32,
}

impl Challenge {
    /// Exactly `r=`, `s=`, `i=`, then extensions that may be passed over.
    fn parse(hash: Hash, answer: &str, ours: &str) -> Result<Self, SaslError> {
        let mut parts = answer.split(',');
        let mut next = |key: &str| {
            let part = parts.next().unwrap_or_default();
            if part.starts_with("m=") {
                return Err(hash.malformed("it demands an extension"));
            }
            if let Some(error) = part.strip_prefix("e=") {
                return Err(SaslError::Refused(told(error)));
            }
            part.strip_prefix(key).ok_or_else(|| hash.malformed("a part is missing"))
        };
        let nonce = next("r=")?.to_owned();
        // Ours must be continued: otherwise it is an answer to somebody else, played again.
        if nonce.len() <= ours.len() || !nonce.starts_with(ours) {
            return Err(hash.malformed("its nonce does not continue the client's"));
        }
        let salt = BASE64.decode(next("s=")?).map_err(|_| hash.malformed("its salt is no base64"))?;
        if salt.is_empty() {
            return Err(hash.malformed("its salt is empty"));
        }
        let count = next("i=")?;
        let iterations = count
            .parse()
            .ok()
            .filter(|count| (ITERATIONS_MIN..=ITERATIONS_MAX).contains(count))
            .ok_or_else(|| SaslError::Iterations(told(count)))?;
        Ok(Self { nonce, salt, iterations })
    }
}

/// The message with the proof, and what the server's proof will be compared with.
fn prove(
    hash: Hash,
    bare: &str,
    answer: &str,
    challenge: &Challenge,
    password: &SecretString,
) -> (SecretSlice<u8>, State) {
    let salted = hash.salted(password.expose_secret().as_bytes(), &challenge.salt, challenge.iterations);
    let client_key = hash.mac(&salted, b"Client Key");
    let server_key = hash.mac(&salted, b"Server Key");
    let stored_key = hash.digest(&client_key);
    let without_proof = format!("{BINDING},r={}", challenge.nonce);
    let auth_message = format!("{bare},{answer},{without_proof}");
    let signature = hash.mac(&stored_key, auth_message.as_bytes());
    let proof: Vec<u8> = client_key.iter().zip(signature.iter()).map(|(key, sign)| key ^ sign).collect();
    let message = format!("{without_proof},p={}", BASE64.encode(proof));
    (SecretSlice::from(message.into_bytes()), State::Proved { server_key, auth_message })
}

impl Hash {
    const fn mechanism(self) -> Mechanism {
        match self {
            Self::Sha256 => Mechanism::ScramSha256,
            Self::Sha512 => Mechanism::ScramSha512,
        }
    }

    const fn malformed(self, problem: &'static str) -> SaslError {
        SaslError::Malformed { mechanism: self.mechanism(), problem }
    }

    /// What the server's last message proves itself with.
    fn final_signature(self, answer: &str) -> Result<Vec<u8>, SaslError> {
        let first = answer.split(',').next().unwrap_or_default();
        if let Some(error) = first.strip_prefix("e=") {
            return Err(SaslError::Refused(told(error)));
        }
        let signature = first.strip_prefix("v=").ok_or_else(|| self.malformed("its proof is missing"))?;
        BASE64.decode(signature).map_err(|_| self.malformed("its proof is no base64"))
    }

    pub(super) fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> Zeroizing<Vec<u8>> {
        let mut salted = Zeroizing::new(vec![0; self.len()]);
        match self {
            Self::Sha256 => pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut salted),
            Self::Sha512 => pbkdf2_hmac::<Sha512>(password, salt, iterations, &mut salted),
        }
        salted
    }

    const fn len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    pub(super) fn digest(self, data: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::Sha256 => Sha256::digest(data).to_vec(),
            Self::Sha512 => Sha512::digest(data).to_vec(),
        })
    }

    pub(super) fn mac(self, key: &[u8], data: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::Sha256 => keyed::<Hmac<Sha256>>(key, data).finalize().into_bytes().to_vec(),
            Self::Sha512 => keyed::<Hmac<Sha512>>(key, data).finalize().into_bytes().to_vec(),
        })
    }

    /// In constant time.
    fn verify(self, key: &[u8], data: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Sha256 => keyed::<Hmac<Sha256>>(key, data).verify_slice(signature).is_ok(),
            Self::Sha512 => keyed::<Hmac<Sha512>>(key, data).verify_slice(signature).is_ok(),
        }
    }
}

#[allow(clippy::expect_used, reason = "HMAC takes keys of every length")]
fn keyed<M: Mac + KeyInit>(key: &[u8], data: &[u8]) -> M {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of every length");
    mac.update(data);
    mac
}
