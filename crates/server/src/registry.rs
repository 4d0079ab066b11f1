//! The models that are served, by name and version: read by every request, changed by loads.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::inference::InferError;
use crate::served::Served;

/// The versions of one model that are served, by number.
pub type Versions = BTreeMap<u64, Arc<Served>>;

/// The models that are served. Readers never wait: a change is a new map in place of the old one.
#[derive(Debug, Default)]
pub struct Registry {
    models: ArcSwap<BTreeMap<String, Versions>>,
}

impl Registry {
    /// A version; the newest, if `version` is empty.
    pub fn get(&self, name: &str, version: &str) -> Result<Arc<Served>, InferError> {
        let models = self.models.load();
        let Some(versions) = models.get(name) else {
            return Err(InferError::Unknown(format!("unknown model '{}'", name.escape_debug())));
        };
        let served = if version.is_empty() {
            versions.values().next_back()
        } else {
            version.parse().ok().and_then(|number: u64| versions.get(&number))
        };
        served.cloned().ok_or_else(|| {
            let there: Vec<String> = versions.keys().map(u64::to_string).collect();
            InferError::Unknown(format!(
                "model '{name}' has no version '{}': it has {}",
                version.escape_debug(),
                there.join(", ")
            ))
        })
    }

    /// Everything that is served, by name and version.
    pub fn all(&self) -> Vec<Arc<Served>> {
        self.models.load().values().flat_map(|versions| versions.values().cloned()).collect()
    }

    /// Serves these versions of a model in place of those before, which are given back.
    pub(crate) fn set(&self, name: &str, versions: Versions) -> Versions {
        let mut before = Versions::new();
        self.models.rcu(|models| {
            let mut models = BTreeMap::clone(models);
            let versions = versions.clone();
            before = if versions.is_empty() {
                models.remove(name)
            } else {
                models.insert(name.to_owned(), versions)
            }
            .unwrap_or_default();
            models
        });
        before
    }

    /// Serves others in place of some that are served, all at once. Those of a model that is no
    /// longer served as it was are left out. Returns how many there were.
    pub(crate) fn replace(&self, pairs: &[(Arc<Served>, Arc<Served>)]) -> usize {
        let mut replaced = 0;
        self.models.rcu(|models| {
            let mut models = BTreeMap::clone(models);
            replaced = 0;
            for (before, after) in pairs {
                let versions =
                    models.get_mut(&before.name).into_iter().flat_map(Versions::values_mut);
                for served in versions.filter(|served| Arc::ptr_eq(served, before)) {
                    *served = after.clone();
                    replaced += 1;
                }
            }
            models
        });
        replaced
    }
}
