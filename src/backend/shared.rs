//! Values that sessions share if they serve a case together in one process. Each is loaded once, and stays until the
//! process ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::definition::CaseFailure;

/// Values by a key that says what they were loaded for.
pub(super) struct Shared<V>(Mutex<BTreeMap<String, Arc<V>>>);

impl<V> Shared<V> {
    pub(super) const fn new() -> Self {
        Shared(Mutex::new(BTreeMap::new()))
    }

    /// The value of a key, loaded at the first request.
    pub(super) fn get(
        &self,
        key: String,
        load: impl FnOnce() -> Result<V, CaseFailure>,
    ) -> Result<Arc<V>, CaseFailure> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&key) {
            return Ok(Arc::clone(found));
        }
        let loaded = Arc::new(load()?);
        known.insert(key, Arc::clone(&loaded));
        Ok(loaded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_loaded_once_per_key_and_again_after_a_failure() {
        let (shared, mut loads) = (Shared::new(), 0);
        let mut get = |key: &str| {
            let loaded = shared.get(key.into(), || {
                loads += 1;
                if loads == 1 { Err(CaseFailure::failed("no file")) } else { Ok(loads) }
            });
            loaded.map(|value| *value).ok()
        };
        assert_eq!(["a", "a", "a", "b"].map(&mut get), [None, Some(2), Some(2), Some(3)]);
    }
}
