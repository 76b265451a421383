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
    (s, person, admin)
}

#[tokio::test]
async fn tables_look_so() {
    let (s, person, admin) = story().await;
    let mut shown = String::new();
    for words in [
        &["workflow", "ls"][..],
        &["workflow", "get", "payroll"],
        &["workflow", "history", "payroll"],
        &["schedule", "ls"],
        &["schedule", "next", "payroll", "-n", "2"],
        &["run", "ls"],
        &["backfill", "ls"],
        &["bulk", "ls"],
        &["freeze", "ls"],
        &["team", "ls"],
        &["me"],
    ] {
        shown.push_str(&format!("$ cronbox {}\n{}\n", words.join(" "), stable(&person.ok(words).await)));
    }
    for words in [&["key", "ls"][..], &["team", "limits", "1"], &["outbox", "ls"], &["drift", "show"]] {
        shown.push_str(&format!("$ cronbox {}\n{}\n", words.join(" "), stable(&admin.ok(words).await)));
    }
    insta::assert_snapshot!(shown);
    s.end().await;
}

/// The members of each object, which programs read.
#[tokio::test]
async fn json_has_these_members() {
    let (s, person, admin) = story().await;
    let mut shown = String::new();
    for (person, words) in [
        (&person, &["workflow", "ls"][..]),
        (&person, &["workflow", "history", "payroll"]),
        (&person, &["schedule", "ls"]),
        (&person, &["schedule", "next", "payroll"]),
        (&person, &["run", "ls"]),
        (&person, &["team", "ls"]),
        (&person, &["me"]),
        (&admin, &["key", "ls"]),
        (&admin, &["team", "limits", "1"]),
    ] {
        let answer = person.json(words).await;
        let one = answer.get(0).unwrap_or(&answer);
        let members: Vec<&str> = one.as_object().unwrap().keys().map(String::as_str).collect();
        shown.push_str(&format!("$ cronbox {} -o json\n{}\n", words.join(" "), members.join(" ")));
    }
    insta::assert_snapshot!(shown);
    s.end().await;
}
