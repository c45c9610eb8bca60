//! SASL PLAIN.

use std::time::Duration;

use kafka_wire::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use kafka_wire_core::StrBytes;

use super::{Answer, Cluster, ConnectionId, Origin, Outcome};
use crate::error_code::{ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM};
use crate::wire::{Api, Response, message};

/// How long a wrong password is answered late, on purpose.
const FAILURE_DELAY: Duration = Duration::from_millis(300);

const PLAIN: &str = "PLAIN";

/// Where a connection stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sasl {
    Begins,
    Chosen,
    Done,
}

impl Sasl {
    pub(super) fn beginning(users: &[(String, String)]) -> Self {
        if users.is_empty() { Self::Done } else { Self::Begins }
    }
}

impl Cluster {
    pub(super) fn may_ask(&self, connection: ConnectionId, api: Api) -> bool {
        let done = self.connections.get(&connection).is_some_and(|connection| connection.sasl == Sasl::Done);
        let share = api.key() >= Api::ShareGroupHeartbeat.key();
        (done || matches!(api, Api::ApiVersions | Api::SaslHandshake | Api::SaslAuthenticate))
            && (self.options.share_groups || !share)
    }

    pub(super) fn sasl_handshake(
        &mut self,
        connection: ConnectionId,
        body: &SaslHandshakeRequest,
    ) -> SaslHandshakeResponse {
        let mechanisms = vec![StrBytes::from(PLAIN)];
        if body.mechanism.as_str() != PLAIN {
            return message!(SaslHandshakeResponse {
                error_code: UNSUPPORTED_SASL_MECHANISM,
                mechanisms: mechanisms,
            });
        }
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.sasl = Sasl::Chosen;
        }
        message!(SaslHandshakeResponse { mechanisms: mechanisms })
    }

    pub(super) fn sasl_authenticate(
        &mut self,
        now: Duration,
        origin: Origin,
        body: &SaslAuthenticateRequest,
    ) -> Outcome {
        let Some(connection) = self.connections.get_mut(&origin.connection) else { return Outcome::Closes };
        if connection.sasl != Sasl::Chosen {
            return message!(SaslAuthenticateResponse { error_code: ILLEGAL_SASL_STATE }).into();
        }
        let mut parts = body.auth_bytes.split(|byte| *byte == 0).skip(1);
        let (user, password) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let users = &self.options.users;
        let right = users.iter().any(|(name, word)| name.as_bytes() == user && word.as_bytes() == password);
        if right || users.is_empty() {
            connection.sasl = Sasl::Done;
            return SaslAuthenticateResponse::default().into();
        }
        let failed = message!(SaslAuthenticateResponse {
            error_code: SASL_AUTHENTICATION_FAILED,
            error_message: Some(StrBytes::from("Authentication failed: Invalid username or password")),
        });
        let response =
            Response { version: origin.version, correlation_id: origin.correlation_id, body: failed.into() };
        let answers = vec![Answer::Response(response), Answer::Disconnect];
        self.delayed.push((now + FAILURE_DELAY, origin.connection, answers));
        Outcome::Waits
    }
}
