//! How each command looks: a table and JSON of the same story, as snapshots.

use tests::Story;

use crate::Person;

/// Ids and times differ from run to run.
fn stable(text: &str) -> String {
    let rules = [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+\d\d:\d\d)", "TIME"),
        (r"cb[a-z]_[0-9a-zA-Z]+", "KEY"),
        (r"\b\d+ ms\b", "N ms"),
        (r" +\n", "\n"),
        (r"  +", "  "),
    ];
    rules.iter().fold(text.to_owned(), |text, (pattern, with)| {
        regex::Regex::new(pattern).unwrap().replace_all(&text, *with).into_owned()
    })
}

async fn story() -> (Story, Person, Person) {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let (person, admin) = (Person::editor(&s), Person::admin(&s));
    person
        .ok(&["workflow", "create", "payroll", "--log", "pay", "--cron", "0 9 * * *", "--timezone", "Europe/Paris"])
        .await;
    person.ok(&["workflow", "create", "manual", "--log", "m", "--label", "owner=shop"]).await;
    s.publish().await;
    person.ok(&["workflow", "fire", "payroll"]).await;
    s.runs_end().await;
    let span = ["--from", "2026-02-27T00:00:00Z", "--to", "2026-03-01T00:00:00Z", "--timing", "now"];
    person.ok(&[&["schedule", "backfill", "payroll"], &span[..]].concat()).await;
    person.ok(&["bulk", "pause", "--workflow", "2", "--reason", "stocktaking"]).await;
    s.job("bulk").await;
    person
        .ok(&["freeze", "start", "holiday", "--from", "2030-12-24T00:00:00Z", "--until", "2030-12-27T00:00:00Z"])
        .await;
    (s, person, admin)
}

/// The ids of the run, the backfill, the operation and the freeze of the story.
async fn ids(person: &Person) -> [String; 4] {
    let mut ids = Vec::new();
    for noun in ["run", "backfill", "bulk", "freeze"] {
        ids.push(person.ok(&[noun, "ls", "-o", "name"]).await.lines().next().unwrap().to_owned());
    }
    ids.try_into().unwrap()
}

#[tokio::test]
async fn tables_look_so() {
    let (s, person, admin) = story().await;
    let mut shown = String::new();
    let [run, backfill, bulk, _] = ids(&person).await;
    for words in [
        &["workflow", "ls"][..],
        &["workflow", "get", "payroll"],
        &["workflow", "history", "payroll"],
        &["schedule", "ls"],
        &["schedule", "next", "payroll", "-n", "2"],
        &["run", "ls"],
        &["run", "get", &run],
        &["backfill", "ls"],
        &["backfill", "get", &backfill],
        &["bulk", "ls"],
        &["bulk", "get", &bulk],
        &["bulk", "items", &bulk],
        &["freeze", "ls"],
        &["missed", "--from", "2026-03-01T00:00:00Z"],
        &["team", "ls"],
        &["me"],
    ] {
        shown.push_str(&format!("$ cronbox {}\n{}\n", stable(&words.join(" ")), stable(&person.ok(words).await)));
    }
    for words in [&["key", "ls"][..], &["team", "limits", "1"], &["outbox", "ls"], &["drift", "show"]] {
        shown.push_str(&format!("$ cronbox {}\n{}\n", words.join(" "), stable(&admin.ok(words).await)));
    }
    insta::assert_snapshot!(shown);
    s.end_early().await;
}

/// The members of each object, which programs read.
#[tokio::test]
async fn json_has_these_members() {
    let (s, person, admin) = story().await;
    let [run, _, bulk, _] = ids(&person).await;
    let mut shown = String::new();
    for (person, words) in [
        (&person, &["workflow", "ls"][..]),
        (&person, &["workflow", "history", "payroll"]),
        (&person, &["schedule", "ls"]),
        (&person, &["schedule", "next", "payroll"]),
        (&person, &["run", "ls"]),
        (&person, &["run", "get", &run]),
        (&person, &["backfill", "ls"]),
        (&person, &["bulk", "ls"]),
        (&person, &["bulk", "items", &bulk]),
        (&person, &["freeze", "ls"]),
        (&person, &["team", "ls"]),
        (&person, &["me"]),
        (&admin, &["key", "ls"]),
        (&admin, &["team", "limits", "1"]),
    ] {
        let answer = person.json(words).await;
        let one = answer.get(0).unwrap_or(&answer);
        let members: Vec<&str> = one.as_object().unwrap().keys().map(String::as_str).collect();
        shown.push_str(&format!("$ cronbox {} -o json\n{}\n", stable(&words.join(" ")), members.join(" ")));
    }
    insta::assert_snapshot!(shown);
    s.end_early().await;
}
