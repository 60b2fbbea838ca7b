//! The number of one reign.

use std::fmt;
use std::num::NonZeroU64;

/// The number that the store gave to one reign; it is also the fencing token.
///
/// A term rises at each change of hands, for the whole life of the election, and is never used
/// twice (I2). It stays below 2^53, so that it survives JSON, Lua and JavaScript unharmed.
///
/// # Examples
/// ```
/// use tenure_core::Term;
///
/// let term = Term::new(42).expect("42 is in range");
/// assert_eq!(term.next().map(Term::get), Some(43));
/// assert_eq!(Term::new(0), None);
/// assert_eq!(Term::new(1 << 53), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(NonZeroU64);

impl Term {
    /// The first term of an election that was never led.
    pub const FIRST: Term = Term(NonZeroU64::MIN);
    /// The last number that a term may have: 2^53 - 1.
    pub const MAX: Term = match NonZeroU64::new((1 << 53) - 1) {
        Some(number) => Term(number),
        None => unreachable!(),
    };

    /// The term of this number, or `None` for zero and for 2^53 and beyond.
    pub const fn new(number: u64) -> Option<Term> {
        match NonZeroU64::new(number) {
            Some(number) if number.get() <= Term::MAX.0.get() => Some(Term(number)),
            _ => None,
        }
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The term after this one, or `None` at the end of the range.
    pub const fn next(self) -> Option<Term> {
        Term::new(self.get() + 1)
    }

    /// The term that a store issues next: one more than `last`, and at least `floor`.
    ///
    /// `None` at the end of the range: such an election is over, rather than wrong.
    ///
    /// # Examples
    /// ```
    /// use tenure_core::Term;
    ///
    /// assert_eq!(Term::successor(None, None), Some(Term::FIRST));
    /// assert_eq!(Term::successor(Term::new(4), Term::new(3)), Term::new(5));
    /// assert_eq!(Term::successor(Term::new(4), Term::new(9)), Term::new(9));
    /// ```
    pub fn successor(last: Option<Term>, floor: Option<Term>) -> Option<Term> {
        let next = match last {
            Some(last) => last.next()?,
            None => Term::FIRST,
        };
        Some(floor.map_or(next, |floor| next.max(floor)))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}
