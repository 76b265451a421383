//! Tasks of a product team that edits a cron twice a year.

use serde_json::{Value, json};
use tests::Story;

use crate::Person;

#[tokio::test]
async fn a_workflow_is_previewed_and_created() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    let words =
        ["workflow", "create", "report", "--log", "m", "--cron", "0 9 * * MON-FRI", "--timezone", "Europe/Paris"];
    let preview = person.ok(&[&words[..], &["--dry-run"]].concat()).await;
    assert!(preview.contains("create workflow:") && preview.contains("+ cron_schedule: \"0 9 * * "), "{preview}");
    assert_eq!(s.count("SELECT count(*) FROM workflows").await, 0);
    let explained =
        person.ok(&["schedule", "explain", "0", "9", "*", "*", "MON-FRI", "--timezone", "Europe/Paris"]).await;
    assert!(explained.contains("meaning") && explained.contains("+0"), "{explained}");
    person.ok(&words).await;
    let next = person.ok(&["schedule", "next", "report", "-n", "3"]).await;
    assert!(next.lines().count() == 4 && next.contains("T09:00:00+0"), "{next}");
    s.end().await;
}

#[tokio::test]
async fn next_times_are_sorted() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let person = Person::editor(&s);
    for (name, cron) in [("late", "0 23 * * *"), ("early", "0 9 * * *"), ("noon report", "0 12 * * *")] {
        person.ok(&["workflow", "create", name, "--log", "m", "--cron", cron]).await;
    }
    let listed = person.json(&["schedule", "ls"]).await;
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["early", "noon report", "late"]);
    s.publish().await;
    s.end().await;
}

#[tokio::test]
async fn workflows_are_found_by_their_text() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    person.ok(&["workflow", "create", "noon report", "--log", "m"]).await;
    person.ok(&["workflow", "create", "other", "--log", "m", "--label", "owner=shop"]).await;
    let found = person.json(&["workflow", "ls", "-q", "REPORT"]).await;
    assert_eq!((found.as_array().unwrap().len(), &found[0]["name"]), (1, &json!("noon report")));
    let lost = person.run(&["workflow", "get", "report"]).await;
    assert!(lost.code == 1 && lost.err.contains("`cronbox workflow ls` lists them"), "{lost:?}");
    let labelled = person.json(&["workflow", "ls", "--label", "owner:shop"]).await;
    assert_eq!((labelled.as_array().unwrap().len(), &labelled[0]["name"]), (1, &json!("other")));
    s.end().await;
}

/// Names may contain each other, and may be numbers.
#[tokio::test]
async fn names_lead_to_one_workflow() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    let first = person.json(&["workflow", "create", "sync", "--log", "m"]).await["id"].to_string();
    person.ok(&["workflow", "archive", "sync"]).await;
    // Letters, so that no name contains the id below.
    s.execute(
        "INSERT INTO workflows (team_id, name, state, action, created_on, updated_on)
         SELECT team_id, 'sync ' || translate(n::text, '0123456789', 'abcdefghij'), 'archived', action, now(), now()
           FROM workflows, generate_series(1, 1100) AS n WHERE name = 'sync'",
    )
    .await;
    let newest = person.json(&["workflow", "create", "sync", "--log", "m"]).await["id"].clone();
    assert_eq!(person.json(&["workflow", "get", "sync"]).await["id"], newest);
    person.ok(&["workflow", "create", "007", "--log", "m"]).await;
    assert_eq!(person.json(&["workflow", "get", "007"]).await["name"], "007");
    person.ok(&["workflow", "create", "2024", "--log", "m"]).await;
    assert_eq!(person.json(&["workflow", "get", "2024"]).await["name"], "2024");
    person.ok(&["workflow", "create", &first, "--log", "m"]).await;
    let said = person.run(&["workflow", "archive", &first]).await;
    assert!(said.code == 1 && said.err.contains(&format!("{first} is the id of sync, and the name of")), "{said:?}");
    s.end_early().await;
}

/// An earlier version accepted inputs and bodies of 125 arrays and objects inside of each other; a list nests them deeper.
#[tokio::test]
async fn deep_documents_leave_lists_readable() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    person.ok(&["workflow", "create", "nested far", "--log", "m"]).await;
    s.execute(
        "UPDATE workflows \
            SET starting_inputs = jsonb_build_object('a', (repeat('[', 124) || repeat(']', 124))::jsonb), \
                action = jsonb_build_object('type', 'http', 'method', 'POST', 'url', 'https://a.example', \
                                            'body', (repeat('[', 125) || repeat(']', 125))::jsonb)",
    )
    .await;
    assert!(person.ok(&["workflow", "ls"]).await.contains("nested far"));
    person.ok(&["workflow", "get", "nested far"]).await;
    s.end_early().await;
}

/// The history says who changed what, and an archived workflow stays final.
#[tokio::test]
async fn history_leads_back_until_the_end() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    person.ok(&["workflow", "create", "report", "--log", "m", "--cron", "0 9 * * *"]).await;
    person.ok(&["workflow", "edit", "report", "--cron", "0 10 * * *"]).await;
    let revision = person.json(&["workflow", "history", "report"]).await[1]["revision"].to_string();
    assert_eq!(person.json(&["workflow", "restore", "report", &revision]).await["cron_schedule"], "0 9 * * *");
    person.ok(&["workflow", "archive", "report"]).await;
    let refused = person.run(&["workflow", "restore", "report", &revision]).await;
    assert!(refused.code == 1 && refused.err.contains("archived"), "{refused:?}");
    s.end().await;
}

/// The editor of the second person saves while the first one's change is new.
#[tokio::test]
async fn of_two_editors_the_second_is_refused() {
    let s = Story::today().await;
    let first = Person::editor(&s);
    first.ok(&["workflow", "create", "payroll", "--log", "m", "--cron", "0 9 * * *"]).await;
    let id = first.json(&["workflow", "get", "payroll"]).await["id"].clone();
    // While this editor is open, the other person saves.
    let script = first.write(
        "editor.sh",
        "sed -i 's/0 9 /0 10 /' \"$1\"\ncurl -s -X PATCH -H \"x-api-key: $CRONBOX_KEY\" -H 'content-type: application/json' -d '{\"cron_schedule\": \"0 11 * * *\"}' \"$CRONBOX_URL/api/v1/workflows/$ID\" > /dev/null\n",
    );
    let second = Person::editor(&s).set("EDITOR", &format!("sh {script}")).set("ID", &id.to_string());
    let said = second.run(&["workflow", "edit", "payroll"]).await;
    assert_eq!(said.code, 1, "{said:?}");
    // Nothing that was typed is lost.
    let kept = said.err.lines().find_map(|line| line.split_once("your text is kept in ")).unwrap().1;
    assert!(std::fs::read_to_string(kept).unwrap().contains("0 10 * * *"), "{said:?}");
    std::fs::remove_dir_all(std::path::Path::new(kept).parent().unwrap()).unwrap();
    assert!(said.err.contains("version_mismatch") && said.err.contains("another edit changed it"), "{said:?}");
    assert_eq!(first.json(&["workflow", "get", "payroll"]).await["cron_schedule"], "0 11 * * *");

    let alone = Person::editor(&s).set("EDITOR", "sed -i 's/0 11 /0 12 /'");
    alone.ok(&["workflow", "edit", "payroll"]).await;
    assert_eq!(first.json(&["workflow", "get", "payroll"]).await["cron_schedule"], "0 12 * * *");
    let unchanged = Person::editor(&s).set("EDITOR", "true");
    assert_eq!(unchanged.ok(&["workflow", "edit", "payroll"]).await, "nothing was changed\n");
    s.end().await;
}

/// A line that is removed in the editor, and a field that is set to null, have their defaults again; the others stay.
#[tokio::test]
async fn a_removed_line_restores_the_default() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    let words = ["workflow", "create", "payroll", "--log", "m", "--cron", "0 9 * * *", "--timezone", "Europe/Paris"];
    let more = ["--ends-at", "2126-12-31T00:00:00Z", "--set", "pause_after_failures=3"];
    person.ok(&[&words[..], &more[..]].concat()).await;
    let editor = Person::editor(&s).set("EDITOR", "sed -i -e /ends_at/d -e 's/0 9 /0 10 /'");
    editor.ok(&["workflow", "edit", "payroll"]).await;
    let read = person.json(&["workflow", "get", "payroll"]).await;
    assert_eq!((&read["ends_at"], &read["cron_schedule"]), (&Value::Null, &json!("0 10 * * *")));
    assert_eq!((&read["timezone"], &read["pause_after_failures"]), (&json!("Europe/Paris"), &json!(3)));

    let removal = ["workflow", "edit", "payroll", "--set", "pause_after_failures=null", "--set", "timezone=null"];
    let plan = person.ok(&[&removal[..], &["--dry-run"]].concat()).await;
    assert!(plan.contains("- pause_after_failures: 3\n") && plan.contains("- timezone: \"Europe/Paris\"\n"), "{plan}");
    person.ok(&removal).await;
    let read = person.json(&["workflow", "edit", "payroll", "--set", "cron_schedule=null"]).await;
    for field in ["pause_after_failures", "timezone", "cron_schedule"] {
        assert_eq!(read[field], Value::Null, "{field}");
    }
    let wrong = person.run(&["workflow", "edit", "payroll", "--set", "end_at=null"]).await;
    assert!(wrong.code == 1 && wrong.err.contains("end_at is no field that can be removed"), "{wrong:?}");
    s.end().await;
}

/// The editor shows headers and marked secrets as null; what is left so keeps its value, and any other null is refused.
#[tokio::test]
async fn an_editor_keeps_write_only_values() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    let words = ["workflow", "create", "hook", "--target", "https://example.com/b", "--header", "authorization=value"];
    let more =
        ["--input", "pin={\"secret\": \"1234\"}", "--input", "month=5", "--body", "{\"a\": {\"b\": 1, \"c\": 2}}"];
    person.ok(&[&words[..], &more[..]].concat()).await;
    let kept = "SELECT count(*) FROM workflows
                 WHERE starting_inputs #>> '{pin,secret}' = '1234' AND action #> '{headers,authorization}' <> 'null'";
    let editor =
        Person::editor(&s).set("EDITOR", "sed -i -e s,example.com/b,example.com/c, -e /month/d -e '/^ *b: 1$/d'");
    editor.ok(&["workflow", "edit", "hook"]).await;
    let read = person.json(&["workflow", "get", "hook"]).await;
    assert_eq!(
        (&read["action"]["url"], &read["action"]["body"]),
        (&json!("https://example.com/c"), &json!({"a": {"c": 2}}))
    );
    assert_eq!(read["starting_inputs"], json!({"pin": {"secret": null}}));
    assert_eq!(s.count(kept).await, 1);
    let refused = person.run(&["workflow", "edit", "hook", "--input", "limit=null"]).await;
    assert!(refused.code == 1 && refused.err.contains("starting_inputs.limit cannot become null"), "{refused:?}");
    assert_eq!(s.count(kept).await, 1);
    s.end().await;
}

/// The values of headers cannot be read, so an option that replaced them all would lose them.
#[tokio::test]
async fn options_keep_what_they_do_not_name() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    let words = ["workflow", "create", "hook", "--target", "https://example.com/b", "--header", "authorization=value"];
    let more = ["--method", "PUT", "--body", "{\"a\": 1}", "--label", "owner=payroll", "--input", "month=5"];
    person.ok(&[&words[..], &more[..]].concat()).await;
    person.ok(&["workflow", "edit", "hook", "--target", "https://example.com/c", "--header", "x-tier=gold"]).await;
    let read = person.json(&["workflow", "edit", "hook", "--label", "tier=gold", "--input", "year=2026"]).await;
    let action = &read["action"];
    let request = (&action["url"], &action["method"], &action["body"]);
    assert_eq!(request, (&json!("https://example.com/c"), &json!("PUT"), &json!({"a": 1})));
    assert_eq!(action["headers"], json!({"authorization": null, "x-tier": null}));
    assert_eq!(read["labels"], json!({"owner": "payroll", "tier": "gold"}));
    assert_eq!(read["starting_inputs"], json!({"month": 5, "year": 2026}));
    let kept = "SELECT count(*) FROM workflows WHERE action #>> '{headers,authorization}' <> '' AND action #>> '{headers,x-tier}' <> ''";
    assert_eq!(s.count(kept).await, 1);

    // Another origin gets no value that was written for the one before.
    let elsewhere = person.run(&["workflow", "edit", "hook", "--target", "https://example.org/c"]).await;
    assert!(elsewhere.err.contains("send the header values again"), "{elsewhere:?}");
    let read = person.json(&["workflow", "edit", "hook", "--set", "labels={\"owner\": \"hr\"}"]).await;
    assert_eq!(read["labels"], json!({"owner": "hr"}), "--set names the complete field");
    s.end().await;
}

#[tokio::test]
async fn the_last_result_is_in_each_row() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    person.ok(&["workflow", "create", "good", "--log", "m"]).await;
    person.ok(&["workflow", "create", "new", "--log", "m"]).await;
    for _ in 0..3 {
        person.ok(&["workflow", "fire", "good", "--wait"]).await;
    }
    let listed = person.ok(&["workflow", "ls"]).await;
    let good = listed.lines().find(|line| line.contains(" good ")).unwrap();
    assert!(good.contains("succeeded") && good.contains("+++"), "{listed}");
    assert!(!listed.lines().find(|line| line.contains(" new ")).unwrap().contains("succeeded"), "{listed}");
    s.end().await;
}

#[tokio::test]
async fn a_workflow_is_paused_until_monday() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    person.ok(&["workflow", "create", "report", "--log", "m", "--cron", "0 9 * * *"]).await;
    let paused = person.json(&["workflow", "pause", "report", "--until", "monday", "--reason", "moving house"]).await;
    assert_eq!((&paused["state"], &paused["pause_reason"]), (&json!("paused"), &json!("moving house")));
    let until: chrono::DateTime<chrono::Utc> = serde_json::from_value(paused["pause_until"].clone()).unwrap();
    assert_eq!(until.format("%A %H:%M").to_string(), "Monday 00:00");
    let resumed = person.json(&["workflow", "resume", "report"]).await;
    assert_eq!((&resumed["state"], &resumed["pause_until"]), (&json!("active"), &Value::Null));
    s.end().await;
}

#[tokio::test]
async fn all_wrong_fields_are_reported_at_once() {
    let s = Story::today().await;
    let words = ["workflow", "create", " ", "--log", "m", "--cron", "61 * * * *", "--timezone", "Europe/Pari"];
    let said = Person::editor(&s).run(&words).await;
    assert_eq!(said.code, 2, "{said:?}");
    for part in ["name", "61 is above 59", "Europe/Pari"] {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
    s.end().await;
}

#[tokio::test]
async fn timezones_are_listed() {
    let s = Story::today().await;
    let said = Person::editor(&s).ok(&["timezones", "paris"]).await;
    assert_eq!(said, "Europe/Paris\n");
    s.end().await;
}

#[tokio::test]
async fn a_holiday_is_silent() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    person.ok(&["workflow", "create", "report", "--log", "m", "--cron", "0 9 * * *"]).await;
    let words = ["freeze", "start", "holiday", "--from", "2030-12-24T00:00:00Z", "--until", "2030-12-27T00:00:00Z"];
    let plan = person.ok(&[&words[..], &["--dry-run"]].concat()).await;
    assert!(plan.contains("freeze"), "{plan}");
    let freeze = person.json(&words).await;
    assert_eq!((&freeze["state"], &freeze["reason"]), (&json!("planned"), &json!("holiday")));
    assert_eq!(person.json(&["workflow", "get", "report"]).await["state"], "active", "it keeps its own state");
    s.end().await;
}

#[tokio::test]
async fn past_times_run_after_a_preview() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    person.ok(&["workflow", "create", "report", "--log", "m", "--cron", "0 * * * *"]).await;
    // A time of the last minutes may have no decision yet.
    let words = ["schedule", "backfill", "report", "--from", "-5h", "--to", "-1h", "--timing", "now"];
    let plan = person.ok(&[&words[..], &["--dry-run"]].concat()).await;
    assert!(plan.starts_with("4 times would run\n"), "{plan}");
    let backfill = person.json(&words).await;
    assert_eq!(backfill["total"], 4);
    s.job("backfills").await;
    s.runs_end().await;
    s.job("backfills").await;
    let listed = person.ok(&["backfill", "ls"]).await;
    assert!(listed.contains(backfill["id"].as_str().unwrap()), "{listed}");
    s.end_early().await;
}
