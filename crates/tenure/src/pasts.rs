//! What is remembered of elections that this candidate takes no part in any more.

use std::collections::{HashMap, VecDeque};

use tenure_core::{Name, Past};

/// How many names are remembered one by one.
const NAMES_MAX: usize = 4096;

/// A later machine of the same candidate numbers its acquires on (C2) and leads no term twice (C1).
/// The terms of the names that were left longest ago are forgotten: their leases were given back,
/// and a store never issues a term again. The numbers of acquires go on for all of them.
#[derive(Default)]
pub(crate) struct Pasts {
    known: HashMap<Name, (u64, Past)>,
    /// In the order in which they were left, each with a number: a name that was left again stands
    /// here twice.
    left: VecDeque<(u64, Name)>,
    count: u64,
    /// What is known of all that were forgotten.
    forgotten: Past,
}

impl Pasts {
    /// What a machine of this name must know.
    pub(crate) fn take(&mut self, name: &Name) -> Past {
        let known = self.known.remove(name).map(|(_, past)| past).unwrap_or_default();
        known.numbered_after(&self.forgotten)
    }

    pub(crate) fn keep(&mut self, name: Name, past: Past) {
        self.count += 1;
        self.known.insert(name.clone(), (self.count, past));
        self.left.push_back((self.count, name));
        while self.known.len() > NAMES_MAX || self.left.len() > 2 * NAMES_MAX {
            let Some((number, name)) = self.left.pop_front() else { return };
            if self.known.get(&name).is_some_and(|(last, _)| *last == number)
                && let Some((_, past)) = self.known.remove(&name)
            {
                self.forgotten = self.forgotten.numbered_after(&past);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_names_is_bounded() {
        let mut pasts = Pasts::default();
        for number in 0..NAMES_MAX * 3 {
            pasts.keep(Name::new(format!("job-{number}")).unwrap(), Past::default());
        }
        assert_eq!(pasts.known.len(), NAMES_MAX);
        assert!(pasts.left.len() <= 2 * NAMES_MAX);
        for _ in 0..NAMES_MAX * 3 {
            pasts.keep(Name::new("the same").unwrap(), Past::default());
        }
        assert!(pasts.left.len() <= 2 * NAMES_MAX);
        assert!(pasts.known.contains_key(&Name::new("the same").unwrap()));
    }
}
