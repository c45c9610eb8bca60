//! The renewal policy `steady`: a lease is renewed by the length that it was taken for, up to a limit.
//!
//! The limit is there so that a message which no worker ever takes is not held for ever by one host. A delivery that
//! still waits is then given back to the broker, which may hand it to another host at once; one that a worker has is left
//! to run out, since the worker may yet finish it.

use tidegate_guest::{Answer, Description, Lease, Renewal, RuleError, Rules};

/// When no more renewals are made.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Steady {
    max_renewals: u32,
    /// Milliseconds.
    max_time: u64,
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Facts {
    length: u64,
    waited: u64,
    renewals: u32,
    emitted: bool,
}

impl Steady {
    fn answer(&self, facts: &Facts) -> Answer {
        if facts.renewals < self.max_renewals && facts.waited < self.max_time {
            return Answer::Renew(facts.length);
        }
        if facts.emitted { Answer::Lapse } else { Answer::Release }
    }
}

impl Renewal for Steady {
    fn describe() -> Description {
        Description::of(
            "steady",
            env!("CARGO_PKG_VERSION"),
            "Renews leases by their original length, up to a limit.",
        )
        .integer(
            "max-renewals",
            "How often one lease is renewed; as often as `max-time` allows when left out.",
            None,
        )
        .duration("max-time", "How long after its arrival a delivery is kept.", Some("1h"))
    }

    fn configure(rules: &mut Rules) -> Result<Self, RuleError> {
        let max_renewals = rules.integer("max-renewals", 0..=1_000_000_000)?;
        Ok(Self {
            max_renewals: max_renewals.and_then(|max| u32::try_from(max).ok()).unwrap_or(u32::MAX),
            max_time: rules.duration("max-time")?.unwrap_or(3_600_000),
        })
    }

    fn decide(&mut self, lease: &Lease) -> Answer {
        self.answer(&Facts {
            length: lease.length(),
            waited: lease.message().waited(),
            renewals: lease.renewals(),
            emitted: lease.emitted(),
        })
    }
}

tidegate_guest::renewal!(Steady);

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(rules: &str) -> Result<Steady, RuleError> {
        Steady::configure(&mut Rules::parse(rules).unwrap())
    }

    const FACTS: Facts = Facts { length: 60_000, waited: 50_000, renewals: 0, emitted: false };

    #[test]
    fn a_lease_is_renewed_by_its_own_length() {
        let steady = steady("{}").unwrap();
        assert_eq!(steady.answer(&FACTS), Answer::Renew(60_000));
        assert_eq!(
            steady.answer(&Facts { renewals: 1_000_000, emitted: true, ..FACTS }),
            Answer::Renew(60_000)
        );
    }

    #[test]
    fn past_the_limit_what_waits_goes_back_and_what_is_worked_on_runs_out() {
        let by_count = steady(r#"{"max-renewals": 3}"#).unwrap();
        assert_eq!(by_count.answer(&Facts { renewals: 2, ..FACTS }), Answer::Renew(60_000));
        assert_eq!(by_count.answer(&Facts { renewals: 3, ..FACTS }), Answer::Release);
        assert_eq!(by_count.answer(&Facts { renewals: 3, emitted: true, ..FACTS }), Answer::Lapse);
        let by_time = steady(r#"{"max-time": "10m"}"#).unwrap();
        assert_eq!(by_time.answer(&Facts { waited: 599_999, ..FACTS }), Answer::Renew(60_000));
        assert_eq!(by_time.answer(&Facts { waited: 600_000, ..FACTS }), Answer::Release);
        assert_eq!(steady(r#"{"max-renewals": 0}"#).unwrap().answer(&FACTS), Answer::Release);
    }

    #[test]
    fn rules_that_make_no_sense_are_refused_by_key() {
        assert_eq!(steady(r#"{"max-renewals": -1}"#).unwrap_err().key, "max-renewals");
        assert_eq!(steady(r#"{"max-time": "long"}"#).unwrap_err().key, "max-time");
    }
}
