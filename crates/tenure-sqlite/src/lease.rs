//! What the contract of `tenure_core::Store` means in this file: who gets the lease.
//!
//! A round is one batch inside one transaction, at one instant. It owns the decisions and never
//! waits, opens or commits anything.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension};
use tenure_core::{
    CandidateId, ErrorKind, Forgotten, Grant, Holder, Lease, Metadata, Name, Op, RELEASE_MEMORY,
    Reply, Sight, Term,
};

use crate::error;
use crate::host::{Boot, Host};
use crate::observe::{Record, Standing, Watch};
use crate::witness::HolderProcess;

/// One handle as others see it: the row of its witnesses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Me {
    /// Random, so that no other handle ever writes to the same row.
    pub(crate) id: i64,
    pub(crate) witness: HolderProcess,
    /// Whether rows of others may be left over that nobody has looked at yet.
    pub(crate) new_here: bool,
}

/// What a round means for others and for the watcher.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Elections that others should look at again.
    pub(crate) announce: Vec<Name>,
    /// Elections that we do not hold because somebody visible does.
    pub(crate) blocked: Vec<Blocked>,
    /// Elections that we were granted.
    pub(crate) ours: Vec<Name>,
    /// Whether the row of our witnesses is there now.
    pub(crate) testified: bool,
}

/// An election that is held by somebody whose death could be seen from here.
#[derive(Clone, Debug)]
pub(crate) struct Blocked {
    pub(crate) election: Name,
    pub(crate) id: i64,
    pub(crate) witness: HolderProcess,
    pub(crate) expires_ns: i64,
}

/// One batch at one instant.
pub(crate) struct Round<'a> {
    pub(crate) conn: &'a Connection,
    host: &'a Host,
    me: &'a Me,
    pub(crate) now_ns: i64,
    /// What was seen of leases whose times mean nothing here.
    watch: &'a RefCell<Watch>,
    /// Each holder is looked at once per batch.
    verdicts: HashMap<i64, bool>,
    pub(crate) news: News,
}

/// One row of the table of leases.
struct Row {
    record: Record,
    asked: bool,
    since_unix_ms: Option<i64>,
    metadata: Option<String>,
    witness: Option<(i64, HolderProcess)>,
}

/// What an acquire is after.
#[derive(Clone, Copy)]
struct Wish<'a> {
    election: &'a Name,
    candidate: &'a CandidateId,
    seq: u64,
    above: Option<Term>,
    floor: Option<Term>,
    ttl: Duration,
    metadata: Option<&'a Metadata>,
}

/// What an acquire comes to.
enum Step {
    Refuse,
    /// The same term again (C1).
    Heal {
        term: Term,
        asked: bool,
    },
    /// A new term; of a lease that ran out, with its ttl.
    Issue {
        expired: Option<Duration>,
    },
}

impl<'a> Round<'a> {
    /// A round at the present instant. The clock is read here, after any waiting for others.
    pub(crate) fn new(
        conn: &'a Connection,
        host: &'a Host,
        me: &'a Me,
        watch: &'a RefCell<Watch>,
    ) -> Round<'a> {
        let (verdicts, news) = (HashMap::new(), News::default());
        Round { conn, host, me, now_ns: host.now_ns(), watch, verdicts, news }
    }

    /// What is to be told once the transaction is over.
    pub(crate) fn into_news(self) -> News {
        self.news
    }

    /// Answers the batch if nothing in it changes anything; else `None`.
    pub(crate) fn look(&mut self, ops: &[Op]) -> rusqlite::Result<Option<Vec<Reply>>> {
        let mut replies = Vec::with_capacity(ops.len());
        for op in ops {
            let row = self.row(op.election())?;
            replies.push(match wish(op) {
                None if matches!(op, Op::Read { .. }) => Reply::Seen(self.sight(op, row)),
                Some(wish) if self.is_refused(wish, row.as_ref())? => {
                    Reply::Refused(self.sight(op, row))
                }
                _ => return Ok(None),
            });
        }
        Ok(Some(replies))
    }

    /// Carries out the batch. Needs a transaction that may write.
    pub(crate) fn change(&mut self, ops: &[Op]) -> rusqlite::Result<Vec<Reply>> {
        let mut replies = Vec::with_capacity(ops.len());
        for op in ops {
            replies.push(match op {
                Op::Renew { election, candidate, term, ttl } => {
                    self.renew(op, election, candidate, *term, *ttl)?
                }
                Op::Release { election, candidate, term, seq } => {
                    self.release(op, election, candidate, *term, *seq)?
                }
                Op::Ask { election, term } => self.ask(op, election, *term)?,
                Op::Read { election } => {
                    let row = self.row(election)?;
                    Reply::Seen(self.sight(op, row))
                }
                Op::Acquire { .. } => match wish(op) {
                    Some(wish) => self.acquire(op, wish)?,
                    None => unreachable!("an acquire is a wish"),
                },
            });
        }
        if ops.iter().any(|op| matches!(op, Op::Release { .. })) {
            self.execute(
                include_str!("sql/trim_releases.sql"),
                [self.now_ns.saturating_sub(nanos(RELEASE_MEMORY))],
            )?;
        }
        Ok(replies)
    }

    fn acquire(&mut self, op: &Op, wish: Wish<'_>) -> rusqlite::Result<Reply> {
        let row = self.row(wish.election)?;
        if self.is_overtaken(wish)? {
            return Ok(Reply::Refused(self.sight(op, row)));
        }
        match (self.step(wish, row.as_ref()), row) {
            (Step::Refuse, row) => Ok(Reply::Refused(self.sight(op, row))),
            (Step::Heal { term, asked }, _) => self.heal(wish, term, asked),
            (Step::Issue { expired }, row) => {
                self.issue(wish, row.map(|row| row.record.term), expired)
            }
        }
    }

    fn heal(&mut self, wish: Wish<'_>, term: Term, asked: bool) -> rusqlite::Result<Reply> {
        self.testify()?;
        let Wish { election, candidate, ttl, .. } = wish;
        self.execute(
            include_str!("sql/heal.sql"),
            (
                election.as_str(),
                candidate.as_str(),
                self.end_of(ttl),
                nanos(ttl),
                column(wish.seq),
                self.me.id,
                self.host.boot().column(),
            ),
        )?;
        self.news.ours.push(election.clone());
        Ok(Reply::Granted(Grant { asked, ..Grant::new(term) }))
    }

    fn issue(
        &mut self,
        wish: Wish<'_>,
        last: Option<Term>,
        expired: Option<Duration>,
    ) -> rusqlite::Result<Reply> {
        let Some(term) = Term::successor(last.max(wish.above), wish.floor) else {
            let used_up = error::new(
                ErrorKind::Unsupported,
                "the terms of this election are used up; give it another name",
            );
            return Ok(Reply::Unknown(used_up.during("acquire")));
        };
        self.testify()?;
        let changed = self.execute(
            include_str!("sql/issue.sql"),
            (
                wish.election.as_str(),
                term_column(term),
                wish.candidate.as_str(),
                self.end_of(wish.ttl),
                nanos(wish.ttl),
                column(wish.seq),
                self.me.id,
                unix_ms(),
                wish.metadata.map(Metadata::as_str),
                self.host.boot().column(),
            ),
        )?;
        if changed != 1 {
            // The row says otherwise than a moment ago, inside the same transaction.
            return Err(rusqlite::Error::StatementChangedRows(changed));
        }
        self.news.ours.push(wish.election.clone());
        Ok(Reply::Granted(Grant { expired, ..Grant::new(term) }))
    }

    fn renew(
        &mut self,
        op: &Op,
        election: &Name,
        candidate: &CandidateId,
        term: Term,
        ttl: Duration,
    ) -> rusqlite::Result<Reply> {
        let asked = self
            .conn
            .prepare_cached(include_str!("sql/renew.sql"))?
            .query_row(
                (
                    election.as_str(),
                    candidate.as_str(),
                    term_column(term),
                    self.end_of(ttl),
                    nanos(ttl),
                    self.now_ns,
                    self.host.boot().column(),
                ),
                |row| row.get(0),
            )
            .optional()?;
        Ok(match asked {
            Some(asked) => Reply::Granted(Grant { asked, ..Grant::new(term) }),
            None => {
                let row = self.row(election)?;
                Reply::Refused(self.sight(op, row))
            }
        })
    }

    fn release(
        &mut self,
        op: &Op,
        election: &Name,
        candidate: &CandidateId,
        term: Option<Term>,
        seq: u64,
    ) -> rusqlite::Result<Reply> {
        self.execute(
            include_str!("sql/record_release.sql"),
            (election.as_str(), candidate.as_str(), column(seq), self.now_ns),
        )?;
        let row = self.row(election)?;
        match row {
            // Without a term it means the acquires up to `seq`: a lease that a later one got is
            // not what the sender gave up (C2).
            Some(row)
                if self.holder(election, &row) == Some(candidate.as_str())
                    && term.map_or(row.record.seq <= column(seq), |t| t == row.record.term) =>
            {
                self.execute(include_str!("sql/vacate.sql"), [election.as_str()])?;
                self.news.announce.push(election.clone());
                Ok(Reply::Granted(Grant::new(row.record.term)))
            }
            row => Ok(Reply::Refused(self.sight(op, row))),
        }
    }

    fn ask(&mut self, op: &Op, election: &Name, term: Option<Term>) -> rusqlite::Result<Reply> {
        match self.row(election)? {
            Some(row)
                if self.holder(election, &row).is_some()
                    && term.is_none_or(|term| term == row.record.term) =>
            {
                self.execute(include_str!("sql/ask.sql"), [election.as_str()])?;
                self.news.announce.push(election.clone());
                Ok(Reply::Granted(Grant::new(row.record.term)))
            }
            row => Ok(Reply::Refused(self.sight(op, row))),
        }
    }

    /// Forgets an election, its term apart, unless somebody may still lead it.
    pub(crate) fn forget(&mut self, election: &Name) -> rusqlite::Result<Forgotten> {
        if let Some(row) = self.row(election)?
            && self.holder(election, &row).is_some()
            && !self.is_proven_dead(&row)
        {
            return Ok(Forgotten::Led);
        }
        let known = self.execute(include_str!("sql/forget.sql"), [election.as_str()])? > 0;
        self.execute(include_str!("sql/forget_messages.sql"), [election.as_str()])?;
        self.conn.execute(include_str!("sql/trim_witnesses.sql"), [self.me.id])?;
        Ok(if known { Forgotten::Done } else { Forgotten::NotKnown })
    }

    /// Whether an acquire is refused, with nothing to be written for it.
    fn is_refused(&mut self, wish: Wish<'_>, row: Option<&Row>) -> rusqlite::Result<bool> {
        Ok(matches!(self.step(wish, row), Step::Refuse) || self.is_overtaken(wish)?)
    }

    fn step(&mut self, wish: Wish<'_>, row: Option<&Row>) -> Step {
        let Some(row) = row else {
            return Step::Issue { expired: None };
        };
        match self.standing(wish.election, row) {
            Standing::Held { .. } if row.is_held_by(wish.candidate) => match wish.above {
                Some(above) if row.record.term <= above => Step::Issue { expired: None },
                _ => Step::Heal { term: row.record.term, asked: row.asked },
            },
            // Decided again inside the transaction that writes.
            Standing::Held { .. } if self.is_proven_dead(row) => Step::Issue { expired: None },
            Standing::Held { .. } => Step::Refuse,
            Standing::RanOut => Step::Issue { expired: Some(span(row.record.ttl_ns)) },
            Standing::Vacant | Standing::BeforeReboot => Step::Issue { expired: None },
        }
    }

    fn standing(&self, election: &Name, row: &Row) -> Standing {
        let mut watch = self.watch.borrow_mut();
        watch.standing(election, &row.record, self.now_ns, self.host.boot())
    }

    /// Who holds the lease at this instant.
    fn holder<'r>(&self, election: &Name, row: &'r Row) -> Option<&'r str> {
        let held = matches!(self.standing(election, row), Standing::Held { .. });
        row.record.holder.as_deref().filter(|_| held)
    }

    fn is_proven_dead(&mut self, row: &Row) -> bool {
        let host = self.host;
        row.witness.is_some_and(|(id, witness)| {
            *self.verdicts.entry(id).or_insert_with(|| witness.is_proven_dead(host))
        })
    }

    /// Whether a release of the same candidate came first (C2).
    fn is_overtaken(&self, wish: Wish<'_>) -> rusqlite::Result<bool> {
        let seq: Option<i64> = self
            .conn
            .prepare_cached(include_str!("sql/overtaken.sql"))?
            .query_row((wish.election.as_str(), wish.candidate.as_str()), |row| row.get(0))
            .optional()?;
        Ok(seq.is_some_and(|seq| column(wish.seq) <= seq))
    }

    /// What stands there, for the reply; and for the watcher, if it stands in our way.
    fn sight(&mut self, op: &Op, row: Option<Row>) -> Sight {
        let Some(row) = row else {
            return Sight::default();
        };
        let last_term = Some(row.record.term);
        let Standing::Held { left_ns } = self.standing(op.election(), &row) else {
            return Sight { last_term, ..Sight::default() };
        };
        if let Some((id, witness)) = row.witness
            && id != self.me.id
            && witness.is_visible_from(self.host)
        {
            let (election, expires_ns) = (op.election().clone(), self.now_ns + left_ns);
            self.news.blocked.push(Blocked { election, id, witness, expires_ns });
        }
        let lease = Lease {
            holder: Holder::new(row.record.holder.unwrap_or_default()),
            term: Some(row.record.term),
            remaining: span(left_ns),
            ttl: Some(span(row.record.ttl_ns)),
            since_unix_ms: row.since_unix_ms.and_then(|ms| u64::try_from(ms).ok()),
            metadata: row.metadata.and_then(|json| Metadata::new(&json).ok()),
        };
        Sight { lease: Some(lease), last_term, ..Sight::default() }
    }

    fn row(&self, election: &Name) -> rusqlite::Result<Option<Row>> {
        self.conn
            .prepare_cached(include_str!("sql/look.sql"))?
            .query_row([election.as_str()], |row| {
                let term: i64 = row.get(0)?;
                let record = Record {
                    term: u64::try_from(term)
                        .ok()
                        .and_then(Term::new)
                        .ok_or(rusqlite::Error::IntegralValueOutOfRange(0, term))?,
                    holder: row.get(1)?,
                    expires_ns: row.get(2)?,
                    ttl_ns: row.get(3)?,
                    seq: row.get(4)?,
                    boot: Boot::from_column(row.get(8)?),
                };
                Ok(Row {
                    record,
                    asked: row.get(5)?,
                    since_unix_ms: row.get(6)?,
                    metadata: row.get(7)?,
                    witness: HolderProcess::read(row, 9)?,
                })
            })
            .optional()
    }

    /// Writes the row that our leases point to, before the first of this batch does. Others may
    /// have trimmed it away while we held nothing.
    pub(crate) fn testify(&mut self) -> rusqlite::Result<()> {
        if !self.news.testified {
            self.me.write(self.conn)?;
            self.news.testified = true;
        }
        Ok(())
    }

    fn execute(&self, sql: &str, values: impl rusqlite::Params) -> rusqlite::Result<usize> {
        self.conn.prepare_cached(sql)?.execute(values)
    }

    fn end_of(&self, ttl: Duration) -> i64 {
        self.now_ns.saturating_add(nanos(ttl))
    }
}

impl Row {
    fn is_held_by(&self, candidate: &CandidateId) -> bool {
        self.record.holder.as_deref() == Some(candidate.as_str())
    }
}

impl Me {
    /// Writes the row of our witnesses.
    pub(crate) fn write(&self, conn: &Connection) -> rusqlite::Result<()> {
        if self.new_here {
            conn.execute(include_str!("sql/trim_witnesses.sql"), [self.id])?;
        }
        self.witness.write(conn, self.id)
    }
}

fn wish(op: &Op) -> Option<Wish<'_>> {
    match op {
        Op::Acquire { election, candidate, seq, above, floor, ttl, metadata } => Some(Wish {
            election,
            candidate,
            seq: *seq,
            above: *above,
            floor: *floor,
            ttl: *ttl,
            metadata: metadata.as_ref(),
        }),
        _ => None,
    }
}

/// The wall clock, for people to read beside a lease. Nothing is decided by it.
#[expect(clippy::disallowed_methods, reason = "display only, and a file has no clock of its own")]
pub(crate) fn unix_ms() -> Option<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok()
}

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

fn span(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

fn column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn term_column(term: Term) -> i64 {
    column(term.get())
}
