//! B8: the time from the start of a process until `/readyz` answers.

use std::process::Stdio;
use std::time::{Duration, Instant};

use local::stack::Database;
use tokio::process::Command;

use crate::table::Row;
use crate::{free_port, millis, program};

/// `cronbox-local up` on an empty folder.
pub(crate) async fn up_to_ready(times: u32) -> Row {
    let mut taken_ms = Vec::new();
    for _ in 0..times {
        let data = std::env::temp_dir().join(format!("cronbox-bench-{}", uuid::Uuid::new_v4()));
        let (app, scheduler) = (free_port(), free_port());
        let mut command = Command::new(program("cronbox-local"));
        command.args(["up", "--app-port", &app.to_string(), "--scheduler-port", &scheduler.to_string(), "--data"]);
        taken_ms.push(to_ready(command.arg(&data), app).await);
        std::fs::remove_dir_all(&data).unwrap();
    }
    Row::of_times("B8", "cold `cronbox-local up` to ready, new database", taken_ms)
}

/// `cronbox-app serve` on a migrated database.
pub(crate) async fn app_to_ready(times: u32) -> Row {
    let database = Database::clone_template().await.unwrap();
    let mut taken_ms = Vec::new();
    for _ in 0..times {
        let port = free_port();
        let mut command = Command::new(program("cronbox-app"));
        command.arg("serve").env("DATABASE_URL", database.dsn()).env("CRONBOX_BIND_ADDR", format!("127.0.0.1:{port}"));
        taken_ms.push(to_ready(command.env("CRONBOX_ENV", "bench").env("RUST_LOG", "warn"), port).await);
    }
    database.remove_clone().await.unwrap();
    Row::of_times("B8", "app: cold start to ready", taken_ms)
}

async fn to_ready(command: &mut Command, app_port: u16) -> f64 {
    let api = tests::Api::without_key(&format!("http://127.0.0.1:{app_port}"));
    let started = Instant::now();
    let mut up = command.stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    while !api.try_get("/readyz").await.is_ok_and(|answer| answer.status == 200) {
        assert!(started.elapsed() < Duration::from_secs(60), "it is never ready");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let taken_ms = millis(started);
    Command::new("kill").args(["-INT", &up.id().unwrap().to_string()]).status().await.unwrap();
    up.wait().await.unwrap();
    taken_ms
}
