//! The limits of the transactions of one pool.

use std::sync::Arc;
use std::time::Duration;

use crate::options::{BEGIN_ANYWHERE, LOCK_TIMEOUT, Pooler, STATEMENT_TIMEOUT};

/// How long the statements of a transaction may take; `None` = as the login permits.
///
/// They are set by the statement that begins the transaction, so they cost no round trip, and they end with it: behind
/// a pooler the next client of the connection has its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionLimits {
    /// How long a statement waits for a lock.
    pub lock: Option<Duration>,
    /// How long a statement may take.
    pub statement: Option<Duration>,
}

impl TransactionLimits {
    /// Returns the statement that begins a transaction with these limits, which replace those of every transaction.
    pub(crate) fn begin_statement(self, pooler: Pooler) -> Arc<str> {
        let mut begin = match pooler {
            Pooler::None | Pooler::Session => "BEGIN",
            Pooler::Transaction => BEGIN_ANYWHERE,
        }
        .to_owned();
        let settings =
            [("lock_timeout", self.lock, LOCK_TIMEOUT), ("statement_timeout", self.statement, STATEMENT_TIMEOUT)];
        for (setting, limit, usual) in settings {
            if let Some(limit) = limit.filter(|limit| *limit != usual) {
                // 0 would be no limit.
                begin.push_str(&format!("; SET LOCAL {setting} = {}", limit.as_millis().max(1)));
            }
        }
        begin.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_set_with_the_begin() {
        let limits = TransactionLimits { lock: Some(Duration::from_secs(1)), statement: Some(Duration::ZERO) };
        let own = "; SET LOCAL lock_timeout = 1000; SET LOCAL statement_timeout = 1";
        for (pooler, begin) in
            [(Pooler::None, "BEGIN"), (Pooler::Session, "BEGIN"), (Pooler::Transaction, BEGIN_ANYWHERE)]
        {
            assert_eq!(&*limits.begin_statement(pooler), format!("{begin}{own}"), "after the general ones: {pooler:?}");
            assert_eq!(&*TransactionLimits::default().begin_statement(pooler), begin);
            let usual = TransactionLimits { lock: Some(LOCK_TIMEOUT), statement: Some(STATEMENT_TIMEOUT) };
            assert_eq!(&*usual.begin_statement(pooler), begin, "the session has them");
        }
    }
}
