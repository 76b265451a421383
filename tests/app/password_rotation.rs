//! The database's password is rotated while the app runs. No deployment is needed.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use sqlx::{AssertSqlSafe, Executor as _};
use tests::{Api, PATIENCE, Story};

use crate::startup::{app, expect_error, run, serve_with, stop};

/// A role that only this story uses, and the file with its password.
struct Vault<'a> {
    s: &'a Story,
    role: String,
    file: PathBuf,
}

impl<'a> Vault<'a> {
    async fn new(s: &'a Story) -> Self {
        let role = format!("rotating_{}", place(s).rsplit('/').next().unwrap());
        let vault = Self { s, role, file: temporary_file() };
        let role = &vault.role;
        vault.execute(format!("CREATE ROLE {role} LOGIN PASSWORD 'first' IN ROLE {}", db::APP_GROUP)).await;
        vault.rotate_in_the_file("first");
        vault
    }

    /// Changes the password in the database, and ends the sessions with the old one.
    async fn rotate_in_the_database(&self, password: &str) {
        self.execute(format!("ALTER ROLE {} PASSWORD '{password}'", self.role)).await;
        self.execute(format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{}'", self.role))
            .await;
    }

    fn rotate_in_the_file(&self, password: &str) {
        let dsn = format!("postgres://{}:{password}@{}\n", self.role, place(self.s));
        std::fs::write(&self.file, dsn).unwrap();
    }

    async fn execute(&self, statement: String) {
        self.s.pool.execute(AssertSqlSafe(statement)).await.unwrap();
    }

    async fn remove(self) {
        self.execute(format!("DROP ROLE {}", self.role)).await;
        std::fs::remove_file(self.file).unwrap();
    }
}

fn temporary_file() -> PathBuf {
    std::env::temp_dir().join(format!("login-{}", uuid::Uuid::new_v4()))
}

/// `host:port/database`
fn place(s: &Story) -> String {
    s.owner_dsn().split_once('@').unwrap().1.to_owned()
}

/// Until an edit, a list and the check of readiness succeed, which use three pools.
async fn until_it_works(api: &Api) {
    let working = async {
        while !works(api).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, working).await.expect("it works again");
}

/// Whether they succeed now.
async fn works(api: &Api) -> bool {
    let body = json!({"name": uuid::Uuid::new_v4(), "action": {"type": "log", "message": "a"}});
    let edit = api.post("/api/v1/workflows", &body).await;
    let (list, ready) = (api.get("/api/v1/workflows").await, api.get("/readyz").await);
    (edit.status, list.status, ready.status) == (201, 200, 200)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apps_go_on_after_a_rotation() {
    let s = Story::today().await;
    let vault = Vault::new(&s).await;
    let file = vault.file.to_str().unwrap().to_owned();
    let settings = [("CRONBOX_DB_LOGIN_FILE", file.as_str())];
    let (mut serving, url) = serve_with(&format!("postgres://{}", place(&s)), &settings).await;
    let api = Api::new(&url, &s.keys.editor);
    until_it_works(&api).await;

    vault.rotate_in_the_file("second");
    vault.rotate_in_the_database("second").await;
    until_it_works(&api).await;

    // Between the two steps of a rotation, no password is valid: the app says that it is not ready, and goes on.
    vault.rotate_in_the_database("third").await;
    let refused = async {
        while api.get("/readyz").await.status != 503 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("the login is refused");
    vault.rotate_in_the_file("third");
    until_it_works(&api).await;
    stop(&mut serving).await;
    vault.remove().await;
    s.end_early().await;
}

/// A file that cannot be used is an error at the start, in one sentence without its content.
#[tokio::test]
async fn a_file_that_is_no_login_is_named() {
    let file = temporary_file();
    std::fs::write(&file, r#"{"password": "hunter2"}"#).unwrap();
    let mut command = app();
    command.arg("serve").env("DATABASE_URL", "postgres://127.0.0.1:9/x").env("CRONBOX_DB_LOGIN_FILE", &file);
    expect_error(&run(&mut command).await, "neither a DSN nor JSON");
    expect_error(&run(command.env("DATABASE_URL", "x")).await, "DATABASE_URL names no host");
    command.env("DATABASE_URL", "postgres://127.0.0.1:9/x").env("CRONBOX_DB_LOGIN_FILE", "/nowhere");
    expect_error(&run(&mut command).await, "check CRONBOX_DB_LOGIN_FILE");
    std::fs::remove_file(file).unwrap();
}
