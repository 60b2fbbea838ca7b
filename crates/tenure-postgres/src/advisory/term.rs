//! Issuing terms, and the table that they are left in where there is one.

use std::time::Duration;

use tenure_core::{ErrorKind, Name, Term};
use tokio_postgres::types::{ToSql, Type};

use super::candidate::Ops;
use super::key;
use super::lease;
use super::lock_session::{LockSession, Trouble, column, millis, span};
use crate::error;

/// What came of asking for a term.
#[derive(Clone, Debug)]
pub(super) enum Issued {
    Term(Term),
    /// The election is one of the table of leases, and led there (P8).
    Led(String),
    /// These sessions are in transactions that are fenced by the last term, which is told, too.
    Fenced(Vec<i32>, Option<Term>),
}

/// What the two ways of issuing a term take.
const OF_ISSUE: [Type; 3] = [Type::INT8, Type::INT4_ARRAY, Type::INT4_ARRAY];
const OF_BEGIN: [Type; 9] = [
    Type::TEXT_ARRAY,
    Type::INT8_ARRAY,
    Type::TEXT_ARRAY,
    Type::INT4_ARRAY,
    Type::INT4_ARRAY,
    Type::INT8_ARRAY,
    Type::TEXT,
    Type::INT4,
    Type::INT8,
];

impl LockSession {
    /// The statement that issues a term: in the table, where there is one.
    pub(super) fn issue_sql(&self) -> (String, &'static [Type]) {
        if self.tables {
            let names = &self.config.base.names;
            return (names.render(include_str!("sql/begin.sql")), &OF_BEGIN);
        }
        (include_str!("sql/issue.sql").to_owned(), &OF_ISSUE)
    }

    /// A term for all of these elections, whose locks the session holds (A1); with the server's
    /// clock.
    pub(super) async fn issue(&self, ops: &Ops) -> Result<(Vec<Issued>, Duration), Trouble> {
        if self.tables {
            return self.issue_in_table(ops).await;
        }
        let masks = ops.iter().map(|(_, op)| key::mask(key::key(op.election())));
        let (his, los): (Vec<i32>, Vec<i32>) = masks.unzip();
        let offset = self.offset();
        let rows = self.run(|prepared| &prepared.issue, &[&offset, &his, &los]).await?;
        let Some(row) = rows.first() else {
            // The next session uses the tables.
            let message = "`tenure migrate` has been here; a new session is made for the next call";
            return Err(Trouble::Lost(error::new(ErrorKind::Unavailable, message)));
        };
        let term = term(column(row, 0)?)?;
        Ok((vec![Issued::Term(term); ops.len()], span(column(row, 1)?)))
    }

    async fn issue_in_table(&self, ops: &Ops) -> Result<(Vec<Issued>, Duration), Trouble> {
        let names: Vec<&str> = ops.iter().map(|(_, op)| op.election().as_str()).collect();
        let keys: Vec<i64> = ops.iter().map(|(_, op)| key::key(op.election())).collect();
        let metadata: Vec<Option<&str>> = ops.iter().map(|(_, op)| lease::metadata(op)).collect();
        let (his, los): (Vec<i32>, Vec<i32>) = keys.iter().map(|key| key::mask(*key)).unzip();
        let least = |op| lease::least(op).map(|term| i64::try_from(term.get()).unwrap_or(i64::MAX));
        let leasts: Vec<Option<i64>> = ops.iter().map(|(_, op)| least(op)).collect();
        let (candidate, ttl_ms, offset) =
            (self.candidate.as_str(), millis(self.ttl), self.offset());
        let values: [&(dyn ToSql + Sync); 9] =
            [&names, &keys, &metadata, &his, &los, &leasts, &candidate, &ttl_ms, &offset];
        let rows = self.run(|prepared| &prepared.issue, &values).await?;
        let mut issued = vec![Issued::Fenced(Vec::new(), None); ops.len()];
        let mut clock = Duration::ZERO;
        for row in &rows {
            let place = usize::try_from(column::<i64>(row, 0)? - 1).unwrap_or(usize::MAX);
            let (number, above): (Option<i64>, Option<i64>) = (column(row, 1)?, column(row, 2)?);
            let leader: Option<String> = column(row, 5)?;
            clock = span(column(row, 4)?);
            if let Some(slot) = issued.get_mut(place) {
                *slot = match (number, leader) {
                    (Some(number), _) => Issued::Term(term(number)?),
                    (None, Some(leader)) => Issued::Led(leader),
                    (None, None) => {
                        let last = above.and_then(|last| term(last).ok());
                        Issued::Fenced(column::<Option<_>>(row, 3)?.unwrap_or_default(), last)
                    }
                };
            }
        }
        Ok((issued, clock))
    }

    /// Ends transactions that have fenced an election for too long that nobody leads any more (P3).
    pub(super) async fn end_fence(&self, election: &Name) {
        let sql = self.config.base.names.render(include_str!("sql/end_fence.sql"));
        match self.query(&sql, &[(&key::key(election), Type::INT8)]).await {
            Ok(rows) => {
                let pids = rows.first().and_then(|row| row.try_get::<_, Vec<i32>>(0).ok());
                tracing::warn!(%election, ?pids, "ended fenced transactions of a term long over");
            }
            Err(trouble) => {
                let error = trouble.into_error();
                tracing::warn!(%election, %error, "a fenced transaction could not be ended");
            }
        }
    }

    /// How long a fenced transaction may outlast its term.
    pub(super) fn fence_grace(&self) -> Duration {
        self.config.base.fence_grace
    }
}

fn term(number: i64) -> Result<Term, Trouble> {
    u64::try_from(number).ok().and_then(Term::new).ok_or_else(|| {
        let message = "the numbers of transactions are at their end; lower term_offset";
        Trouble::Said(error::new(ErrorKind::Unsupported, message))
    })
}
