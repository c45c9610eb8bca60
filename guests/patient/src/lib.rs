//! The renewal policy `patient`: the longer a delivery has waited in the host the longer is its renewal, so that a slow
//! queue costs the broker few requests; and when the host is nearly full, what will not have its turn soon goes back to
//! the broker, where another host can get it.
//!
//! Giving up is for hosts that cannot keep up while others can. A delivery near the front is never given up, nor one
//! that a worker has.

use tidegate_guest::{Answer, Description, Lease, Renewal, RuleError, Rules};

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Patient {
    /// Milliseconds of renewal for each millisecond that the delivery has waited, beyond the lease's own length.
    growth: f64,
    /// Milliseconds, as the two after it.
    max_length: u64,
    max_wait: u64,
    max_time: u64,
    /// Part of the host's places, 0 to 1.
    pressure: f64,
    min_position: u32,
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Facts {
    length: u64,
    waited: u64,
    emitted: bool,
    position: u32,
    flow_in_flight: u32,
    flow_budget: u32,
    flow_throughput: f64,
}

impl Patient {
    fn answer(&self, facts: &Facts) -> Answer {
        if facts.waited >= self.max_time {
            return if facts.emitted { Answer::Lapse } else { Answer::Release };
        }
        if !facts.emitted && self.is_full(facts) && self.is_far(facts) {
            return Answer::Release;
        }
        let longer = facts.length as f64 + facts.waited as f64 * self.growth;
        // A lease that is longer by itself stays so.
        Answer::Renew((longer as u64).min(self.max_length).max(facts.length))
    }

    fn is_full(&self, facts: &Facts) -> bool {
        f64::from(facts.flow_in_flight) >= f64::from(facts.flow_budget) * self.pressure
    }

    /// Whether its turn is not to be expected soon. Before anything was done nobody knows, and the place decides.
    fn is_far(&self, facts: &Facts) -> bool {
        let wait = f64::from(facts.position) * 1_000.0 / facts.flow_throughput.max(f64::MIN_POSITIVE);
        facts.position >= self.min_position && wait >= self.max_wait as f64
    }
}

impl Renewal for Patient {
    fn describe() -> Description {
        Description::of(
            "patient",
            env!("CARGO_PKG_VERSION"),
            "Renews longer what has waited longer, and gives up what will not have its turn soon.",
        )
        .number("growth", "How much longer a renewal is for each second that was waited.", Some(1.0))
        .duration("max-length", "The longest renewal, unless the lease itself is longer.", Some("10m"))
        .duration("max-time", "How long after its arrival a delivery is kept.", Some("1h"))
        .number(
            "pressure",
            "Part of the host's places in use from which on deliveries are given up, 0 to 1.",
            Some(0.9),
        )
        .duration("max-wait", "What has its turn within so long is not given up.", Some("1m"))
        .integer("min-position", "What is nearer to the front is not given up.", Some(100))
    }

    fn configure(rules: &mut Rules) -> Result<Self, RuleError> {
        let min_position = rules.integer("min-position", 1..=1_000_000_000)?;
        Ok(Self {
            growth: rules.number("growth", 0.0..=1e3)?.unwrap_or(1.0),
            max_length: rules.duration("max-length")?.unwrap_or(600_000),
            max_time: rules.duration("max-time")?.unwrap_or(3_600_000),
            pressure: rules.number("pressure", 0.0..=1.0)?.unwrap_or(0.9),
            max_wait: rules.duration("max-wait")?.unwrap_or(60_000),
            min_position: min_position.and_then(|min| u32::try_from(min).ok()).unwrap_or(100),
        })
    }

    fn decide(&mut self, lease: &Lease) -> Answer {
        let message = lease.message();
        let standing = message.standing();
        self.answer(&Facts {
            length: lease.length(),
            waited: message.waited(),
            emitted: lease.emitted(),
            position: lease.queue_position(),
            flow_in_flight: standing.flow_in_flight,
            flow_budget: standing.flow_budget,
            flow_throughput: standing.flow_throughput,
        })
    }
}

tidegate_guest::renewal!(Patient);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn patient(rules: &str) -> Result<Patient, RuleError> {
        Patient::configure(&mut Rules::parse(rules).unwrap())
    }

    /// Its turn is in 200 s, in a host that has places.
    const FACTS: Facts = Facts {
        length: 60_000,
        waited: 50_000,
        emitted: false,
        position: 400,
        flow_in_flight: 500,
        flow_budget: 1_000,
        flow_throughput: 2.0,
    };

    #[test]
    fn a_renewal_grows_with_the_wait_up_to_a_limit() {
        let patient = patient("{}").unwrap();
        assert_eq!(patient.answer(&Facts { waited: 0, ..FACTS }), Answer::Renew(60_000));
        assert_eq!(patient.answer(&FACTS), Answer::Renew(110_000));
        assert_eq!(patient.answer(&Facts { waited: 3_000_000, ..FACTS }), Answer::Renew(600_000));
        assert_eq!(patient.answer(&Facts { length: 900_000, ..FACTS }), Answer::Renew(900_000));
    }

    #[test]
    fn a_full_host_gives_up_what_is_far_from_its_turn_and_nothing_else() {
        let patient = patient("{}").unwrap();
        let full = Facts { flow_in_flight: 900, ..FACTS };
        assert_eq!(patient.answer(&full), Answer::Release);
        assert_eq!(patient.answer(&Facts { flow_throughput: 0.0, ..full }), Answer::Release);
        for kept in [
            Facts { flow_in_flight: 899, ..full },
            Facts { position: 99, flow_throughput: 0.1, ..full },
            Facts { flow_throughput: 7.0, ..full },
            Facts { emitted: true, ..full },
        ] {
            assert_eq!(patient.answer(&kept), Answer::Renew(110_000), "{kept:?}");
        }
    }

    #[test]
    fn past_the_limit_what_waits_goes_back_and_what_is_worked_on_runs_out() {
        let patient = patient(r#"{"max-time": "50s"}"#).unwrap();
        assert_eq!(patient.answer(&FACTS), Answer::Release);
        assert_eq!(patient.answer(&Facts { emitted: true, ..FACTS }), Answer::Lapse);
    }

    #[test]
    fn rules_that_make_no_sense_are_refused_by_key() {
        assert_eq!(patient(r#"{"pressure": 90}"#).unwrap_err().key, "pressure");
        assert_eq!(patient(r#"{"min-position": 0}"#).unwrap_err().key, "min-position");
    }

    proptest! {
        #[test]
        fn whoever_waited_longer_is_kept_no_shorter(waited in 0_u64..3_000_000, more in 0_u64..500_000, length in 1_u64..2_000_000) {
            let patient = patient("{}").unwrap();
            let renewal = |waited| match patient.answer(&Facts { waited, length, ..FACTS }) {
                Answer::Renew(length) => length,
                other => panic!("{other:?}"),
            };
            prop_assert!(renewal(waited + more) >= renewal(waited) && renewal(waited) >= length);
        }

        #[test]
        fn no_standing_makes_it_panic(length: u64, waited: u64, position: u32, in_flight: u32, budget: u32, throughput: f64) {
            let facts = Facts {
                length, waited, position,
                emitted: false, flow_in_flight: in_flight, flow_budget: budget, flow_throughput: throughput,
            };
            patient("{}").unwrap().answer(&facts);
        }
    }
}
