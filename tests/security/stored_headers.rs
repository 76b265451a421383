//! An editor moves an action to an origin of their own: the stored header values must not follow.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::ground::{ended_run, fire, idle_story, team_key};
use crate::process::App;
use crate::report::Tally;

const SECRET: &str = "Bearer write-only-5e1f";

/// Changes of the origin: host, port, and both.
pub(crate) async fn attack_origins() -> Tally {
    let s = idle_story().await;
    let app = App::start(&s.dsn(), &[("CRONBOX_ACTION_ALLOW_CIDRS", "127.0.0.0/8,::1/128")]).await;
    let (mine, received) = recording_receiver().await;
    let other = app.api(&team_key(&s, s.keys.team_id, "editor").await);
    let mut tally = Tally::default();
    let urls = [
        format!("http://127.0.0.1:{mine}/"),
        format!("http://127.0.0.2:{mine}/"),
        format!("http://localhost:{mine}/"),
        format!("http://127.0.0.1:{mine}/same/path"),
    ];
    for url in urls {
        for is_merge in [true, false] {
            let action = json!({"type": "http", "method": "POST", "url": "http://127.0.0.1:8009/same/path",
                                "headers": {"Authorization": SECRET, "X-Other": SECRET}});
            let workflow = s.create_with(json!({"max_attempts": 1, "timeout_secs": 3, "action": action})).await;
            let path = format!("/api/v1/workflows/{workflow}");
            let moved = match is_merge {
                true => other.merge_patch(&path, &json!({"action": {"url": url}})).await,
                // What the API shows, sent back with another URL.
                false => {
                    let mut shown = other.get(&path).await.expect(200).json["action"].clone();
                    shown["url"] = json!(url);
                    other.patch(&path, &json!({"action": shown})).await
                }
            };
            received.lock().unwrap().clear();
            let _ended = ended_run(&s, fire(&s, workflow).await).await;
            let heads = received.lock().unwrap().join("\n");
            tally.record(!heads.contains(SECRET), || {
                format!("{url}, answered {}: the new origin reads {heads}", moved.status)
            });
        }
    }
    app.stop().await;
    s.end_early().await;
    tally
}

/// The port of a receiver that records the heads of all requests.
async fn recording_receiver() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let received: Arc<Mutex<Vec<String>>> = Arc::default();
    let heads = Arc::clone(&received);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = vec![0; 16 * 1024];
            let read = stream.read(&mut head).await.unwrap_or(0);
            heads.lock().unwrap().push(String::from_utf8_lossy(&head[..read]).into_owned());
            let _written = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
        }
    });
    (port, received)
}
