//! A component that passed every check that does not depend on rules, and its entries.

use std::sync::Arc;

use wasmtime::Store;
use wasmtime::component::InstancePre;

use crate::bindings::v1::{credentials, lifecycle, observer, partitioner, renewal, throttle};
use crate::grants::{Access, Grants};
use crate::guest::Guest;
use crate::section::Trailer;
use crate::world::World;

/// A compiled component that passed every check that does not depend on rules.
pub(crate) struct Prepared {
    pub(crate) sha256: Arc<str>,
    pub(crate) world: World,
    pub(crate) linked: Linked,
    pub(crate) description: lifecycle::Description,
    pub(crate) trailer: Option<Trailer>,
    pub(crate) imports: Vec<String>,
}

/// A component with all that it imports, and where its exports are.
pub(crate) struct Linked {
    component: InstancePre<Guest>,
    lifecycle: lifecycle::LifecycleViewIndices,
    throttle: Option<throttle::ThrottleViewIndices>,
    renewal: Option<renewal::RenewalViewIndices>,
    credentials: Option<credentials::CredentialsViewIndices>,
    partitioner: Option<partitioner::PartitionerViewIndices>,
    observer: Option<observer::ObserverViewIndices>,
    /// What its instances may use of the host: the interfaces behind it are linked with it.
    access: Arc<Access>,
}

/// The exports of one instance.
pub(crate) struct Entries {
    pub(crate) lifecycle: lifecycle::LifecycleView,
    pub(crate) throttle: Option<throttle::ThrottleView>,
    pub(crate) renewal: Option<renewal::RenewalView>,
    pub(crate) credentials: Option<credentials::CredentialsView>,
    pub(crate) partitioner: Option<partitioner::PartitionerView>,
    pub(crate) observer: Option<observer::ObserverView>,
}

impl Linked {
    /// Finds the exports of the world, and those that a policy may have or not.
    pub(crate) fn new(
        component: InstancePre<Guest>,
        world: World,
        observes: bool,
        access: Arc<Access>,
    ) -> wasmtime::Result<Self> {
        let is = |wanted| world == wanted;
        Ok(Self {
            lifecycle: lifecycle::LifecycleViewIndices::new(&component)?,
            throttle: is(World::ThrottlePolicy)
                .then(|| throttle::ThrottleViewIndices::new(&component))
                .transpose()?,
            renewal: is(World::RenewalPolicy)
                .then(|| renewal::RenewalViewIndices::new(&component))
                .transpose()?,
            credentials: is(World::CredentialResolver)
                .then(|| credentials::CredentialsViewIndices::new(&component))
                .transpose()?,
            partitioner: is(World::PartitionerPolicy)
                .then(|| partitioner::PartitionerViewIndices::new(&component))
                .transpose()?,
            observer: observes.then(|| observer::ObserverViewIndices::new(&component)).transpose()?,
            component,
            access,
        })
    }

    /// Whether it wants to know how deliveries ended.
    pub(crate) const fn observes(&self) -> bool {
        self.observer.is_some()
    }

    /// What its instances were granted.
    pub(crate) fn grants(&self) -> &Grants {
        self.access.grants()
    }

    pub(crate) const fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// Makes an instance; this is where the types of its exports are checked.
    pub(crate) fn instantiate(&self, store: &mut Store<Guest>) -> wasmtime::Result<Entries> {
        let instance = self.component.instantiate(&mut *store)?;
        Ok(Entries {
            lifecycle: self.lifecycle.load(&mut *store, &instance)?,
            throttle: self.throttle.as_ref().map(|view| view.load(&mut *store, &instance)).transpose()?,
            renewal: self.renewal.as_ref().map(|view| view.load(&mut *store, &instance)).transpose()?,
            credentials: self
                .credentials
                .as_ref()
                .map(|view| view.load(&mut *store, &instance))
                .transpose()?,
            partitioner: self
                .partitioner
                .as_ref()
                .map(|view| view.load(&mut *store, &instance))
                .transpose()?,
            observer: self.observer.as_ref().map(|view| view.load(&mut *store, &instance)).transpose()?,
        })
    }
}
