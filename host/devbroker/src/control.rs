//! The handle by which tests and demonstrations see and disturb a running broker.

use std::sync::Arc;
use std::time::Duration;

use tidegate_proto::rocketmq as wire;
use tidegate_proto::rocketmq::telemetry_command::Command;
use tokio::sync::{mpsc, oneshot};

use crate::broker::Order;
use crate::faults::Fault;
use crate::hub::Hub;
use crate::journal::{Seen, Stats};
use crate::options::{Group, Topic};
use crate::store::Audit;

/// Sees and disturbs a running broker. Clones act on the same one.
#[derive(Clone, Debug)]
pub struct Control {
    hub: Arc<Hub>,
    orders: Vec<mpsc::Sender<Order>>,
}

/// A command the server sends to a client over its telemetry stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ClientCommand {
    /// Drop the connection and make it anew.
    ReconnectEndpoints,
    /// Send a stack trace.
    PrintThreadStackTrace,
    /// Drop this lite topic from the own subscription.
    UnsubscribeLite(String),
}

impl Control {
    pub(crate) fn new(hub: Arc<Hub>, orders: Vec<mpsc::Sender<Order>>) -> Self {
        Self { hub, orders }
    }

    /// Makes a topic; an existing one stays as it is.
    pub fn create_topic(&self, topic: &Topic) {
        self.hub.create_topic(topic);
    }

    /// Makes a group or replaces its attributes.
    pub fn create_group(&self, group: Group) {
        self.hub.catalog.create_group(group);
    }

    /// Orders a fault.
    pub fn inject(&self, fault: Fault) {
        self.hub.faults.add(fault);
    }

    /// Takes back all faults still to come.
    pub fn clear_faults(&self) {
        self.hub.faults.clear();
    }

    /// Moves the broker's clock forward: everything due by then becomes due now, handles included.
    pub fn advance(&self, by: Duration) {
        self.hub.clock.advance(by);
        for cell in &self.hub.cells {
            cell.run(&self.hub.clock, |store, now| store.handle_timeout(now));
        }
    }

    /// Kills the first proxy and starts it again: connections drop, settings are forgotten, the port is the same.
    /// Returns when it listens again.
    pub async fn restart_proxy(&self, pause: Duration) {
        self.restart_proxy_at(0, pause).await;
    }

    /// Kills and restarts the proxy of that number. Returns when it listens again, or the broker is stopped.
    pub async fn restart_proxy_at(&self, proxy: usize, pause: Duration) {
        self.stop_proxy_at(proxy).await;
        tokio::time::sleep(pause).await;
        self.start_proxy_at(proxy).await;
    }

    /// Kills the proxy of that number: connections drop, settings are forgotten, nobody listens.
    pub async fn stop_proxy_at(&self, proxy: usize) {
        self.order(proxy, Order::Stop).await;
    }

    /// Lets a killed proxy listen again. Returns when it does, or the broker is stopped.
    pub async fn start_proxy_at(&self, proxy: usize) {
        self.order(proxy, Order::Start).await;
    }

    /// Freezes the proxy of that number, as SIGSTOP would: its connections stay open, and nothing is answered or done.
    pub fn freeze_proxy_at(&self, proxy: usize) {
        self.set_frozen(proxy, true);
    }

    /// Lets a frozen proxy go on, with the calls that nobody has given up.
    pub fn thaw_proxy_at(&self, proxy: usize) {
        self.set_frozen(proxy, false);
    }

    fn set_frozen(&self, proxy: usize, frozen: bool) {
        if let Some(proxy) = self.hub.proxies.get(proxy) {
            proxy.set_frozen(frozen);
        }
    }

    async fn order(&self, proxy: usize, order: impl FnOnce(oneshot::Sender<()>) -> Order) {
        let Some(orders) = self.orders.get(proxy) else { return };
        let (done, answer) = oneshot::channel();
        if orders.send(order(done)).await.is_ok() {
            // An error here means that the broker is being stopped.
            let _ = answer.await;
        }
    }

    /// Kills the first broker and starts it again after `down`; for `unknown` after that the proxies answer that its
    /// topics and groups do not exist. What was in flight is forgotten, messages and acks are kept.
    pub fn restart_broker(&self, down: Duration, unknown: Duration) {
        self.restart_broker_at(0, down, unknown);
    }

    /// Kills and restarts the broker of that number.
    pub fn restart_broker_at(&self, broker: usize, down: Duration, unknown: Duration) {
        self.hub.restart_broker(broker, down, unknown);
    }

    /// Kills the broker of that number, which stays away until it is started.
    pub fn stop_broker_at(&self, broker: usize) {
        self.hub.restart_broker(broker, Duration::MAX, Duration::ZERO);
    }

    /// Starts a killed broker; for `unknown` from now on the proxies do not route to it.
    pub fn start_broker_at(&self, broker: usize, unknown: Duration) {
        self.hub.restart_broker(broker, Duration::ZERO, unknown);
    }

    /// Sends a client a command over its telemetry stream. Says whether the client has one.
    pub fn send_command(&self, client: &str, command: &ClientCommand) -> bool {
        let command = match command {
            ClientCommand::ReconnectEndpoints => {
                Command::ReconnectEndpointsCommand(wire::ReconnectEndpointsCommand { nonce: nonce() })
            }
            ClientCommand::PrintThreadStackTrace => {
                Command::PrintThreadStackTraceCommand(wire::PrintThreadStackTraceCommand { nonce: nonce() })
            }
            ClientCommand::UnsubscribeLite(lite_topic) => {
                Command::NotifyUnsubscribeLiteCommand(wire::NotifyUnsubscribeLiteCommand {
                    lite_topic: lite_topic.clone(),
                })
            }
        };
        let command = wire::TelemetryCommand { status: None, command: Some(command) };
        let mut sent = false;
        for settled in self.hub.proxies.iter().filter_map(|proxy| proxy.settled(client)) {
            sent |= settled.command(command.clone());
        }
        sent
    }

    /// The lite clients registered in a group at the first broker.
    #[must_use]
    pub fn lite_clients(&self, topic: &str, group: &str) -> Vec<Arc<str>> {
        self.hub.cells[0].run(&self.hub.clock, |store, _| store.registered_clients(topic, group))
    }

    /// What happened to every message.
    #[must_use]
    pub fn audit(&self) -> Audit {
        self.hub.audit()
    }

    /// Counts and present state.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.hub.stats()
    }

    /// The last requests, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<Seen> {
        self.hub.journal.seen()
    }

    /// Forgets counts and requests.
    pub fn clear_requests(&self) {
        self.hub.journal.clear();
    }
}

/// The one command of its kind a client has at a time: a constant will do.
fn nonce() -> String {
    "tidegate-devbroker".to_owned()
}
