//! Rows of `workflows` vanish without the app, as after a partial restore, and later return.

use super::History;

/// In one transaction and with the table locked against edits, so that no edit is split.
const VANISH: &str = "
    BEGIN;
    SET LOCAL session_replication_role = replica;
    LOCK TABLE workflows IN EXCLUSIVE MODE NOWAIT;
    INSERT INTO vanished_workflows SELECT * FROM workflows;
    DELETE FROM workflows;
    COMMIT;
";

const RETURN: &str = "
    BEGIN;
    SET LOCAL session_replication_role = replica;
    INSERT INTO workflows OVERRIDING SYSTEM VALUE SELECT * FROM vanished_workflows;
    DELETE FROM vanished_workflows;
    COMMIT;
";

impl History<'_> {
    /// Lets all rows vanish, or lets the vanished ones return.
    pub(super) async fn vanish_or_return(&mut self) {
        if self.has_vanished {
            return self.return_rows().await;
        }
        // An open edit has locked the table, so the rows do not vanish now.
        if sqlx::raw_sql(VANISH).execute(&mut *self.ground.admin.connection().await).await.is_err() {
            sqlx::raw_sql("ROLLBACK").execute(&mut *self.ground.admin.connection().await).await.unwrap();
            return;
        }
        self.has_vanished = true;
        self.coverage.vanished += 1;
        self.note("all rows of workflows vanish".to_owned());
    }

    /// The rows return as they were.
    pub(super) async fn return_rows(&mut self) {
        if self.has_vanished {
            sqlx::raw_sql(RETURN).execute(&mut *self.ground.admin.connection().await).await.unwrap();
            self.has_vanished = false;
            self.note("the rows of workflows are back".to_owned());
        }
    }
}
