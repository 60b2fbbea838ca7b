//! Locks that stay usable after a panic.
//!
//! The standard library marks a lock as poisoned when a thread panics while it holds the lock. For
//! us that mark is no help: a leader that can't lock can't step down either. So each lock here
//! guards data that no panic leaves half changed, and these functions ignore the mark.

use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// Locks a mutex.
///
/// # Examples
/// ```
/// use std::sync::Mutex;
/// use tenure_core::sync::lock;
///
/// let count = Mutex::new(1);
/// *lock(&count) += 1;
/// assert_eq!(*lock(&count), 2);
/// ```
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for reading, beside other readers.
pub fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing.
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the lock up until somebody notifies, and takes it again. It may also wake without a
/// notice.
pub fn wait<'a, T>(notified: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    notified.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_panic_under_the_lock_locks_nobody_out() {
        let (mutex, rw_lock) = (Mutex::new(1), RwLock::new(1));
        let panics = catch_unwind(AssertUnwindSafe(|| {
            let _held = (lock(&mutex), write(&rw_lock));
            panic!("while both are held");
        }));
        assert!(panics.is_err() && mutex.is_poisoned() && rw_lock.is_poisoned());
        *lock(&mutex) += 1;
        *write(&rw_lock) += 1;
        assert_eq!((*lock(&mutex), *read(&rw_lock)), (2, 2));
    }

    #[test]
    fn a_wait_ends_with_the_notice() {
        let (open, opened) = (Mutex::new(false), Condvar::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *lock(&open) = true;
                opened.notify_all();
            });
            let mut is_open = lock(&open);
            while !*is_open {
                is_open = wait(&opened, is_open);
            }
        });
    }
}
