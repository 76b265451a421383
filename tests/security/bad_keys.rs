//! Guesses of keys: they must cost the database nothing after an address has used up its tries.

use tests::CountingWay;

use crate::ground::idle_story;
use crate::process::App;
use crate::report::Tally;

/// The limit of the attacked app, for one address.
const LIMIT: usize = 20;
/// Guesses of one address.
const GUESSES: usize = 400;

/// Sends more unknown keys than an address may try, and counts the statements that read keys.
pub(crate) async fn attack_by_bad_keys() -> Tally {
    let s = idle_story().await;
    let way = CountingWay::to(&s.dsn()).await;
    let settings = [("CRONBOX_BAD_KEYS_PER_MIN", "20")];
    let app = App::start(&way.dsn(&s.dsn()), &settings).await;
    let mut tally = Tally::default();
    app.api(&s.keys.editor).get("/api/v1/workflows").await.expect(200);
    drop(way.take_rows());
    for nth in 0..GUESSES {
        let guess = format!("cb_{nth:012x}_{}", "A".repeat(43));
        let answer = app.api(&guess).get("/api/v1/workflows").await;
        tally.record(matches!(answer.status, 401 | 429), || format!("guess {nth}: {answer:?}"));
    }
    let lookups: u64 =
        way.take_rows().iter().filter(|(label, _)| label.contains("a key")).map(|(_, rows)| rows.statements).sum();
    if lookups == 0 {
        tally.fail("no statement that reads a key was counted: adapt the label");
    }
    // One minute more may begin meanwhile.
    if lookups > 3 * LIMIT as u64 {
        tally
            .fail(format!("{GUESSES} guesses of one address cost {lookups} lookups, with a limit of {LIMIT} a minute"));
    }
    let honest = app.api(&s.keys.editor).get("/api/v1/workflows").await;
    tally.record(honest.status == 200, || format!("an active key of that address: {honest:?}"));
    app.stop().await;
    s.end_early().await;
    tally
}
