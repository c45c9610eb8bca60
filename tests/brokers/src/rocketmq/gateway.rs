//! Asks a proxy the two questions that show a cluster to be usable: who has this topic, and will you take a message.

use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use tidegate_proto::rocketmq::messaging_service_client::MessagingServiceClient;
use tidegate_proto::rocketmq::{
    Code, Encoding, Message, MessageType, QueryRouteRequest, Resource, SendMessageRequest, Status,
    SystemProperties,
};
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};

use super::configuration::Credentials;

/// Each call's own limit; the caller repeats.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The broker does not check how old it is.
const DATE_TIME: &str = "20260101T000000Z";

/// One proxy, as a client that sends no settings sees it.
pub(crate) struct Gateway<'a> {
    client: MessagingServiceClient<Channel>,
    credentials: Option<&'a Credentials>,
}

impl<'a> Gateway<'a> {
    /// The proxy takes plaintext on the same port even when it has a certificate.
    pub(crate) async fn connect(port: u16, credentials: Option<&'a Credentials>) -> Result<Self, String> {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))
            .map_err(|error| error.to_string())?
            .connect_timeout(CALL_TIMEOUT)
            .timeout(CALL_TIMEOUT);
        let channel = endpoint.connect().await.map_err(|error| error.to_string())?;
        Ok(Self { client: MessagingServiceClient::new(channel), credentials })
    }

    /// Names of the brokers that the proxy routes `topic` to.
    pub(crate) async fn brokers_of(&mut self, topic: &str) -> Result<Vec<String>, String> {
        let request = QueryRouteRequest { topic: Some(resource(topic)), ..Default::default() };
        let request = self.request(request)?;
        let answer =
            self.client.query_route(request).await.map_err(|status| status.to_string())?.into_inner();
        expect_ok(answer.status)?;
        let mut brokers: Vec<String> =
            answer.message_queues.into_iter().filter_map(|queue| Some(queue.broker?.name)).collect();
        brokers.sort();
        brokers.dedup();
        Ok(brokers)
    }

    /// Sends one small message to a topic of type NORMAL.
    pub(crate) async fn send(&mut self, topic: &str) -> Result<(), String> {
        let message = Message {
            topic: Some(resource(topic)),
            body: b"ready?".as_slice().into(),
            system_properties: Some(SystemProperties {
                message_id: "tidegate-ready".into(),
                message_type: MessageType::Normal.into(),
                body_encoding: Encoding::Identity.into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let request = self.request(SendMessageRequest { messages: vec![message] })?;
        let answer =
            self.client.send_message(request).await.map_err(|status| status.to_string())?.into_inner();
        expect_ok(answer.status)
    }

    fn request<T>(&self, body: T) -> Result<Request<T>, String> {
        let mut request = Request::new(body);
        let metadata = request.metadata_mut();
        for (name, value) in [
            ("x-mq-client-id", "tidegate-test-brokers"),
            ("x-mq-language", "RUST"),
            ("x-mq-protocol", "v2"),
            ("x-mq-client-version", "5.2.1"),
            ("x-mq-date-time", DATE_TIME),
        ] {
            metadata.insert(name, MetadataValue::from_static(value));
        }
        if let Some(credentials) = self.credentials {
            let value = authorization(credentials)?.parse().map_err(|_| "the access key is not ASCII")?;
            metadata.insert("authorization", value);
        }
        Ok(request)
    }
}

/// The value of the `authorization` header: HMAC-SHA1 of the date-time under the secret key, in hex.
fn authorization(credentials: &Credentials) -> Result<String, String> {
    let mut mac =
        Hmac::<Sha1>::new_from_slice(credentials.secret_key.as_bytes()).map_err(|e| e.to_string())?;
    mac.update(DATE_TIME.as_bytes());
    let signature: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02X}")).collect();
    let access_key = &credentials.access_key;
    Ok(format!("MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders=x-mq-date-time, Signature={signature}"))
}

fn resource(name: &str) -> Resource {
    Resource { name: name.into(), ..Default::default() }
}

fn expect_ok(status: Option<Status>) -> Result<(), String> {
    match status {
        Some(status) if status.code == i32::from(Code::Ok) => Ok(()),
        Some(status) => Err(format!("the proxy answers {}: {}", status.code, status.message)),
        None => Err("the proxy answers without a status".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_of_the_published_vector() {
        let credentials = Credentials { access_key: "ak".into(), secret_key: "secretKey".into() };
        let value = authorization(&credentials).unwrap();
        assert!(value.ends_with("Signature=963ABD36AD60920C3F000248E63AD8782DD2A04E"), "{value}");
    }
}
