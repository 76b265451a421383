//! B8: how long it takes to start.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Command;

use crate::table::Row;
use crate::{free_port, millis, program};

/// B8: from the start of `local up` on an empty folder until `/readyz` answers.
pub(crate) async fn up_to_ready(times: u32) -> Row {
    let program = program("local");
    let mut taken_ms = Vec::new();
    for _ in 0..times {
        let data = std::env::temp_dir().join(format!("cronbox-bench-{}", uuid::Uuid::new_v4()));
        let (app, scheduler) = (free_port(), free_port());
        let mut command = Command::new(&program);
        command.args(["up", "--app-port", &app.to_string(), "--scheduler-port", &scheduler.to_string(), "--data"]);
        let started = Instant::now();
        let mut up = command.arg(&data).stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        let api = tests::Api::without_key(&format!("http://127.0.0.1:{app}"));
        while !api.try_get("/readyz").await.is_ok_and(|answer| answer.status == 200) {
            assert!(started.elapsed() < Duration::from_secs(60), "up is never ready");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        taken_ms.push(millis(started));
        Command::new("kill").args(["-INT", &up.id().unwrap().to_string()]).status().await.unwrap();
        up.wait().await.unwrap();
        std::fs::remove_dir_all(&data).unwrap();
    }
    Row::of_times("B8", "cold `local up` to ready, new database", taken_ms)
}
