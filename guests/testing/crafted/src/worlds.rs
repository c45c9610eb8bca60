//! Policies of the other worlds: about leases, about records, and told how deliveries end.

use crate::{Guest, LOOP};

/// A world of the contract.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum World {
    Throttle,
    ObservingThrottle,
    Renewal,
    Partitioner,
    Resolver,
}

impl World {
    /// Its name in the contract.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Throttle => "throttle-policy",
            Self::ObservingThrottle => "observing-throttle-policy",
            Self::Renewal => "renewal-policy",
            Self::Partitioner => "partitioner-policy",
            Self::Resolver => "credential-resolver",
        }
    }

    /// Whether messages are among what its policies see.
    pub(crate) const fn has_messages(self) -> bool {
        !matches!(self, Self::Partitioner | Self::Resolver)
    }
}

impl Guest {
    /// Delivers every message, and counts what it is told in a counter.
    #[must_use]
    pub fn counting_what_it_is_told() -> Self {
        Self::default()
            .import("state", "add", "$add", "(param i32 i32 i32 i32 i64 i64) (result i64)")
            .observing(
                "(drop (call $add (i32.const 1536) (i32.const 2) (i32.const 1536) (i32.const 2) \
                 (i64.extend_i32_u (local.get $count)) (i64.const 3600000)))",
            )
    }

    /// Delivers every message, and traps when it is told how one ended.
    #[must_use]
    pub fn trapping_when_told() -> Self {
        Self::default().observing("unreachable")
    }

    /// Delivers every message, and loops for ever when it is told how one ended.
    #[must_use]
    pub fn looping_when_told() -> Self {
        Self::default().observing(LOOP)
    }

    /// Renews every lease for so many milliseconds.
    #[must_use]
    pub fn renewing_for(millis: u64) -> Self {
        Self::renewal(&renewed(millis))
    }

    /// Renews the self-test's lease and traps on those that were renewed before.
    #[must_use]
    pub fn trapping_on_renewed_leases() -> Self {
        Self::renewal_with(&[RENEWALS], &format!("{} {}", on_renewed("unreachable"), renewed(1_000)))
    }

    /// Loops for ever on leases that were renewed before.
    #[must_use]
    pub fn looping_on_renewed_leases() -> Self {
        Self::renewal_with(&[RENEWALS], &format!("{} {}", on_renewed(LOOP), renewed(1_000)))
    }

    /// Asks for the message of a lease again and again and gives no handle back, on leases that were renewed before.
    #[must_use]
    pub fn piling_up_handles_on_renewed_leases() -> Self {
        let pile = on_renewed("(loop $more (drop (call $message_of (local.get $lease))) (br $more))");
        let message = ("[method]lease.message", "$message_of", "(param i32) (result i32)");
        Self::renewal_with(&[RENEWALS, message], &format!("{pile} {}", renewed(1_000)))
    }

    /// Places every record but the self-test's in `partition`.
    #[must_use]
    pub fn placing_in(partition: u32) -> Self {
        let mut guest = Self { world: World::Partitioner, decide: String::new(), ..Self::default() }
            .import("outgoing", "[resource-drop]record", "$give_back_record", "(param i32)")
            .import("outgoing", "[method]record.value-size", "$size", "(param i32) (result i32)");
        let version = &guest.version;
        guest.exports = format!(
            "(func (export \"tidegate:policy/partitioner@{version}#partition\") (param $record i32) (param i32)
               (result i32) (local $n i32)
               (if (i32.ne (call $size (local.get $record)) (i32.const 9))
                 (then (local.set $n (i32.const {partition}))))
               (call $give_back_record (local.get $record))
               (local.get $n))"
        );
        guest
    }

    /// Answers every endpoint with the bearer token `token`.
    #[must_use]
    pub fn bearing_a_token() -> Self {
        let mut guest = Self { world: World::Resolver, decide: String::new(), ..Self::default() };
        let version = &guest.version;
        guest.fields = "(data (i32.const 1536) \"token\")".to_owned();
        guest.exports = format!(
            "(func (export \"tidegate:policy/credentials@{version}#resolve\") (param i32 i32 i32) (result i32)
               (i32.store8 (i32.const 256) (i32.const 0)) (i32.store8 (i32.const 264) (i32.const 3))
               (i32.store (i32.const 268) (i32.const 1536)) (i32.store (i32.const 272) (i32.const 5))
               (i32.store8 (i32.const 296) (i32.const 0)) (i32.const 256))"
        );
        guest
    }

    fn observing(mut self, code: &str) -> Self {
        let version = &self.version;
        self.world = World::ObservingThrottle;
        self.exports = format!(
            "(func (export \"tidegate:policy/observer@{version}#observe\") (param $list i32) (param $count i32)
               (global.set $heap (i32.const 4096)) {code})"
        );
        self
    }

    fn renewal(code: &str) -> Self {
        Self::renewal_with(&[], code)
    }

    /// A renewal policy that imports these functions of `delivery`, and whose code leaves the address of its answer.
    fn renewal_with(imports: &[(&str, &str, &str)], code: &str) -> Self {
        let guest = Self { world: World::Renewal, decide: String::new(), ..Self::default() };
        let mut guest = guest.import("delivery", "[resource-drop]lease", "$give_back_lease", "(param i32)");
        for (name, function, signature) in imports {
            guest = guest.import("delivery", name, function, signature);
        }
        let version = &guest.version;
        guest.exports = format!(
            "(func (export \"tidegate:policy/renewal@{version}#decide\") (param $lease i32) (result i32)
               (global.set $heap (i32.const 4096))
               {code}
               (call $give_back_lease (local.get $lease)))"
        );
        guest
    }
}

/// How often a lease was renewed: the self-test's never was.
const RENEWALS: (&str, &str, &str) = ("[method]lease.renewals", "$renewals", "(param i32) (result i32)");

fn on_renewed(code: &str) -> String {
    format!("(if (call $renewals (local.get $lease)) (then {code}))")
}

/// The answer to renew for so many milliseconds.
fn renewed(millis: u64) -> String {
    format!(
        "(i32.store8 (i32.const 256) (i32.const 0)) (i64.store (i32.const 264) (i64.const 0x{millis:x})) \
         (i32.const 256)"
    )
}
