//! Rows of `workflows` vanish past the app, as after a partial restore, and come back.

use super::History;

/// In one statement and under the locks that edits take, so that no edit is cut in two.
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
    /// All rows vanish, or those that have vanished come back.
    pub(super) async fn vanish_or_return(&mut self) {
        if self.has_vanished {
            return self.return_rows().await;
        }
        // An open edit holds the table's lock: then nothing vanishes now.
        if sqlx::raw_sql(VANISH).execute(&mut *self.ground.admin.connection().await).await.is_err() {
            sqlx::raw_sql("ROLLBACK").execute(&mut *self.ground.admin.connection().await).await.unwrap();
            return;
        }
        self.has_vanished = true;
        self.coverage.vanished += 1;
        self.note("all rows of workflows vanish".to_owned());
    }

    /// The rows are as they were when they vanished.
    pub(super) async fn return_rows(&mut self) {
        if self.has_vanished {
            sqlx::raw_sql(RETURN).execute(&mut *self.ground.admin.connection().await).await.unwrap();
            self.has_vanished = false;
            self.note("the rows of workflows are back".to_owned());
        }
    }
}
