//! `/metrics` of the daemon: what rules and the dashboard read.

use std::time::Instant;

use tests::PATIENCE;
use tests::metric_names::{check_with_promtool, documented_names, metric_names, sampled_names, used_names};

use crate::world::World;

/// A queue at which nothing listens: without one, the page has no dead letters.
const QUEUE: &str = "http://127.0.0.1:9/123456789012/runner-dlq";

#[tokio::test]
async fn the_page_has_what_rules_and_documents_name() {
    let world = World::new().await;
    let port = tests::find_kept_port();
    let address = format!("127.0.0.1:{port}");
    let daemon = world.process(&["--listen", "--metrics-addr", &address, "--runner-dlq-url", QUEUE], None);
    let began = Instant::now();
    let page = loop {
        match reqwest::get(format!("http://{address}/metrics")).await {
            Ok(answer) => {
                let page = answer.text().await.unwrap();
                // A gauge that takes longer than 2 s, which it may on a loaded machine, is not in the page.
                if page.lines().any(|line| line == "cronbox_publisher_figures_unread 0") {
                    break page;
                }
                assert!(began.elapsed() < PATIENCE, "gauges stay unread:\n{page}");
            }
            Err(error) => assert!(began.elapsed() < PATIENCE, "no page: {error}"),
        }
        tokio::task::yield_now().await;
    };
    let is_ours = |name: &&String| name.starts_with("cronbox_publisher_");
    let (used, sampled) = (used_names(), sampled_names(&page));
    let missing: Vec<_> = used.iter().filter(is_ours).filter(|name| !sampled.contains(*name)).collect();
    assert!(missing.is_empty(), "rules or dashboard use {missing:?}, which is not in\n{page}");
    let (documented, shown) = (documented_names(), metric_names(&page));
    assert_eq!(documented.iter().filter(is_ours).collect::<Vec<_>>(), shown.iter().collect::<Vec<_>>());
    check_with_promtool(&page);
    drop(daemon);
}
