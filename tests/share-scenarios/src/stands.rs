//! Clusters that scenarios play on: in memory each has its own, real ones are shared.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_test_brokers::kafka::Version;
use tokio::sync::{Mutex, OnceCell, OwnedMutexGuard};

use crate::stage::{MemoryStage, RealStage, Stage, Stand};

/// Which kind of cluster there is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// In memory.
    Memory,
    /// Real brokers.
    Real,
}

/// Hands out the cluster that a scenario needs.
#[async_trait(?Send)]
pub trait Stands: Send + Sync + 'static {
    /// What kind they are.
    fn side(&self) -> Side;

    /// Which release they are, for the scenarios' names, where there are several.
    fn release(&self) -> Option<Version>;

    /// Scenarios that play at the same time when the command line does not say.
    fn side_by_side(&self) -> usize;

    /// A cluster of this kind.
    async fn take(&self, stand: Stand) -> Taken;
}

/// A cluster, and the right to do with it what its stand allows.
pub struct Taken {
    stage: Arc<dyn Stage>,
    _alone: Option<OwnedMutexGuard<()>>,
}

impl Deref for Taken {
    type Target = dyn Stage;

    fn deref(&self) -> &Self::Target {
        &*self.stage
    }
}

/// A cluster in memory for every scenario.
pub struct InMemory;

#[async_trait(?Send)]
impl Stands for InMemory {
    fn side(&self) -> Side {
        Side::Memory
    }

    fn release(&self) -> Option<Version> {
        None
    }

    fn side_by_side(&self) -> usize {
        12
    }

    async fn take(&self, stand: Stand) -> Taken {
        Taken { stage: Arc::new(MemoryStage::start(stand).await), _alone: None }
    }
}

/// One real cluster of each kind, started when the first scenario asks for it and ended when this is dropped.
pub struct Real {
    version: Version,
    places: parking_lot::Mutex<BTreeMap<u8, Arc<Place>>>,
    /// Two clusters that start at the same time on two cores take longer than one after the other.
    starting: Arc<Mutex<()>>,
}

impl Real {
    /// Clusters of every release that is tested.
    #[must_use]
    pub fn of_every_release() -> Vec<Self> {
        let starting = Arc::<Mutex<()>>::default();
        let of = |version| Self {
            version,
            places: parking_lot::Mutex::default(),
            starting: Arc::clone(&starting),
        };
        Version::ALL.map(of).into()
    }
}

#[derive(Default)]
struct Place {
    stage: OnceCell<Arc<RealStage>>,
    alone: Arc<Mutex<()>>,
}

#[async_trait(?Send)]
impl Stands for Real {
    fn side(&self) -> Side {
        Side::Real
    }

    fn release(&self) -> Option<Version> {
        Some(self.version)
    }

    fn side_by_side(&self) -> usize {
        8
    }

    async fn take(&self, stand: Stand) -> Taken {
        let place = Arc::clone(self.places.lock().entry(stand as u8).or_default());
        let alone = match stand {
            Stand::Crash | Stand::Three | Stand::Narrow => Some(Arc::clone(&place.alone).lock_owned().await),
            Stand::One | Stand::Guarded | Stand::Without => None,
        };
        let start = || async {
            let _one_at_a_time = self.starting.lock().await;
            Arc::new(RealStage::start(self.version, stand).await)
        };
        let stage = Arc::clone(place.stage.get_or_init(start).await);
        if alone.is_some() {
            // The one before may have failed half-way.
            stage.heal().await;
        }
        Taken { stage, _alone: alone }
    }
}
