//! The fence for data in Redis: a script that runs a write only while the term leads.
//!
//! The lease, the check and the write are in one server, and a script is atomic there: a write
//! under term 42 happens before term 43 exists, or not at all. It is refused as well once the
//! lease has run out or was given up, even if nobody has taken it since.
//!
//! - The write is one command, of any kind: `SET`, `HSET`, `XADD`, `EVALSHA` apart (scripts can't
//!   call scripts).
//! - It has to go to the server that elects. In a failover, Redis may lose it as any other write.
//! - A lease whose key was deleted or evicted alone still counts, up to its noted end: nobody else
//!   is granted it before that (R6).
//! - All keys of the write are named, so that an ACL and a Cluster know them. The user needs
//!   `+eval`, `+evalsha`, `+get`, `+hmget`, `+time` and what the write needs.
//!
//! # Other languages
//! The same script works from everywhere. For an election `E` (with the prefix, if there is one)
//! without a hash tag of its own, `KEYS` are `E`, `{E}:tenure`, and the keys of the write. With a
//! prefix, the second begins with it too: `app:{app:jobs}:tenure`. With a hash tag, as in
//! `{shop}:jobs`, it is `E:tenure:own`. `ARGV` are the term and the write:
//!
//! ```text
//! EVAL "..." 3 jobs {jobs}:tenure stock 1700000000000 SET stock 4
//! ```
//!
//! It fails with `TENURESTALE` and the latest term that the server knows.
//!
//! ```lua
#![doc = include_str!("lua/fence.lua")]
//! ```

/// The script: `KEYS` are the lease, its companion and the keys of the write; `ARGV` are the term
/// and the write. Fails with `TENURESTALE` for a term that does not lead.
pub const FENCE_LUA: &str = include_str!("lua/fence.lua");

#[cfg(feature = "redis")]
pub use with_redis::{Fence, FenceError, Stale};

#[cfg(feature = "redis")]
mod with_redis {
    use std::error::Error as StdError;
    use std::fmt;
    use std::sync::LazyLock;

    use redis::aio::ConnectionLike;
    use redis::{Arg, Cmd, ErrorKind as Driver, FromRedisValue, RedisError, Script};
    use tenure_core::{Error, ErrorKind, Name, Term};

    use super::FENCE_LUA;
    use crate::error;
    use crate::keys::{ElectionKeys, Keys};

    static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(FENCE_LUA));

    /// The writer leads no more: nothing was written. Stop.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Stale {
        /// The election.
        pub election: Name,
        /// The term that the writer believed in.
        pub term: Term,
        /// The latest term that the server knows; the same one if its lease has ended.
        pub latest: Option<Term>,
    }

    /// Why the fence did not let a write pass.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub enum FenceError {
        /// The term is stale, and nothing was written.
        Stale(Stale),
        /// The command failed, or nobody knows whether it was done.
        Failed(Error),
    }

    /// One term of one election, to put in front of writes.
    ///
    /// # Examples
    /// ```no_run
    /// use tenure_core::{Name, Term};
    /// use tenure_redis::fence::Fence;
    ///
    /// # async fn example(term: Term) -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://localhost/")?;
    /// let mut connection = client.get_multiplexed_async_connection().await?;
    /// let fence = Fence::new("", &Name::new("jobs")?, term)?;
    /// let write = redis::cmd("SET").arg("stock").arg(4).to_owned();
    /// let () = fence.run(&mut connection, &write, &["stock"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[derive(Clone, Debug)]
    pub struct Fence {
        election: Name,
        term: Term,
        keys: ElectionKeys,
    }

    impl Fence {
        /// The fence of this term. `prefix` is the one of the store.
        ///
        /// # Errors
        /// `Config` if the store refuses such a name.
        pub fn new(prefix: &str, election: &Name, term: Term) -> Result<Fence, Error> {
            let keys = Keys::new(prefix).of(election)?;
            Ok(Fence { election: election.clone(), term, keys })
        }

        /// Runs `write` on the user's own connection, which must lead to the server and the
        /// database of the store, if the term still leads. `keys` are all that it touches.
        ///
        /// # Guarantees
        /// The check and the write are one atomic step of the server.
        ///
        /// # Cancel safety
        /// Not cancel safe: if the future is dropped the write may have been done or not.
        ///
        /// # Errors
        /// [`FenceError::Stale`] if the term does not lead; [`FenceError::Failed`] if the write
        /// itself failed, or the connection did.
        pub async fn run<T: FromRedisValue>(
            &self,
            connection: &mut impl ConnectionLike,
            write: &Cmd,
            keys: &[&str],
        ) -> Result<T, FenceError> {
            let mut call = SCRIPT.prepare_invoke();
            call.key(&self.keys.lease).key(&self.keys.companion);
            for key in keys {
                call.key(*key);
            }
            call.arg(self.term.get());
            for arg in write.args_iter() {
                match arg {
                    Arg::Simple(bytes) => call.arg(bytes),
                    _ => {
                        return Err(FenceError::Failed(error::new(
                            ErrorKind::Config,
                            "a fenced write is not a scan; give it plain arguments",
                        )));
                    }
                };
            }
            call.invoke_async(connection).await.map_err(|error| self.failed(error))
        }

        fn failed(&self, error: RedisError) -> FenceError {
            if error.code() == Some("TENURESTALE") {
                let latest = error.detail().and_then(|word| word.split(' ').next()?.parse().ok());
                return FenceError::Stale(Stale {
                    election: self.election.clone(),
                    term: self.term,
                    latest: latest.and_then(Term::new),
                });
            }
            if error.code() == Some("CROSSSLOT") {
                let message = format!(
                    "a fenced write on a Cluster needs its keys in the slot of the election {}; \
                     give them the same hash tag",
                    self.election
                );
                let error = error::new(ErrorKind::Config, message).caused_by(error);
                return FenceError::Failed(error.during("fence"));
            }
            let kind = match error.kind() {
                Driver::Io => ErrorKind::Unavailable,
                _ if error.code().is_some_and(may_pass) => ErrorKind::Unavailable,
                Driver::Server(_) | Driver::Extension => ErrorKind::Denied,
                _ => ErrorKind::Config,
            };
            let message = format!("the fenced write failed: {error}; see what it says");
            FenceError::Failed(error::new(kind, message).during("fence").caused_by(error))
        }
    }

    /// What a server says that is starting, full, being changed or not the one any more.
    fn may_pass(code: &str) -> bool {
        let passing = ["LOADING", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "OOM", "BUSY"];
        let moved = ["MASTERDOWN", "MISCONF", "NOREPLICAS", "MOVED", "ASK"];
        passing.contains(&code) || moved.contains(&code)
    }

    impl fmt::Display for Stale {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Stale { election, term, latest } = self;
            match latest {
                Some(latest) if latest > term => {
                    write!(f, "term {term} of {election} is stale, {latest} came after it; stop")
                }
                _ => write!(f, "term {term} of {election} is stale, its lease has ended; stop"),
            }
        }
    }

    impl StdError for Stale {}

    impl fmt::Display for FenceError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                FenceError::Stale(stale) => stale.fmt(f),
                FenceError::Failed(error) => error.fmt(f),
            }
        }
    }

    impl StdError for FenceError {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            match self {
                FenceError::Stale(_) => None,
                FenceError::Failed(error) => error.source(),
            }
        }
    }
}
