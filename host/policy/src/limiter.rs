//! The memory of one instance: all its linear memories and tables together.

use wasmtime::ResourceLimiter;

/// What a table's element takes in the host.
const ELEMENT_BYTES: usize = 16;

/// It asked for more than it may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("it asked for {requested} bytes of memory in all and may have {max}")]
pub(crate) struct LimitExceeded {
    requested: usize,
    max: usize,
}

/// Counts the bytes of one Store. wasmtime's own `StoreLimits` counts per memory and loses the cause.
#[derive(Debug)]
pub(crate) struct Limiter {
    used: usize,
    max: usize,
}

impl Limiter {
    pub(crate) const fn new(max: usize) -> Self {
        Self { used: 0, max }
    }

    /// What it has now; memories and tables never shrink.
    pub(crate) const fn used_bytes(&self) -> usize {
        self.used
    }

    fn grow(&mut self, by: usize) -> wasmtime::Result<bool> {
        let requested = self.used.saturating_add(by);
        if requested > self.max {
            // An error traps at once and keeps its type; `false` would let the guest abort without a reason.
            return Err(LimitExceeded { requested, max: self.max }.into());
        }
        self.used = requested;
        Ok(true)
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.grow(desired.saturating_sub(current))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.grow(desired.saturating_sub(current).saturating_mul(ELEMENT_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_tables_share_one_budget() {
        let mut limiter = Limiter::new(1_000);
        assert!(limiter.memory_growing(0, 500, None).is_ok());
        assert!(limiter.table_growing(0, 31, None).is_ok());
        let error = limiter.memory_growing(500, 505, None).unwrap_err();
        let exceeded = error.downcast_ref::<LimitExceeded>();
        assert_eq!(exceeded, Some(&LimitExceeded { requested: 1_001, max: 1_000 }));
        assert!(limiter.memory_growing(0, 4, None).is_ok(), "a refusal takes nothing");
    }

    #[test]
    fn a_size_beyond_the_address_space_is_refused() {
        assert!(Limiter::new(1_000).memory_growing(0, usize::MAX, None).is_err());
        assert!(Limiter::new(1_000).table_growing(0, usize::MAX, None).is_err());
    }
}
