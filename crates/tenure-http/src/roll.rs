//! Which elections are watched. The list changes seldom and is looked at with every request, so
//! a reader takes the whole list as it is.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use tenure::core::sync;

use crate::hub::Watched;

/// The elections that are watched.
#[derive(Default)]
pub(crate) struct Roll(RwLock<Arc<List>>);

/// The list as it was when somebody looked.
#[derive(Clone, Default)]
pub(crate) struct List {
    /// In the order in which they came.
    pub(crate) all: Vec<Arc<Watched>>,
    by_name: BTreeMap<String, Arc<Watched>>,
}

impl List {
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Watched>> {
        self.by_name.get(name)
    }
}

impl Roll {
    #[inline]
    pub(crate) fn list(&self) -> Arc<List> {
        sync::read(&self.0).clone()
    }

    /// Adds one; false if there is one of that name.
    pub(crate) fn add(&self, watched: &Arc<Watched>) -> bool {
        let name = watched.election.name().as_str();
        let mut list = sync::write(&self.0);
        if list.by_name.contains_key(name) {
            return false;
        }
        let list = Arc::make_mut(&mut list);
        list.all.push(watched.clone());
        list.by_name.insert(name.to_owned(), watched.clone());
        true
    }

    /// Takes one away, if it is there.
    pub(crate) fn remove(&self, name: &str) -> Option<Arc<Watched>> {
        let mut list = sync::write(&self.0);
        let list = Arc::make_mut(&mut list);
        let removed = list.by_name.remove(name)?;
        list.all.retain(|watched| watched.election.name().as_str() != name);
        Some(removed)
    }
}
