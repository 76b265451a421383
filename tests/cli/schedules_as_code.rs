//! `apply`, `diff`, `export` and `delete`.

use schedule::WorkflowId;
use serde_json::json;
use tests::Story;

use crate::Person;

const FILE: &str = "version: cronbox/v1
owner: payroll
workflows:
  - name: a
    cron_schedule: 0 9 * * *
    action: {type: log, message: \"a ${env:GREETING}\"}
  - name: b
    labels: {tier: gold}
    max_attempts: 3
    action: {type: log, message: b}
";

fn person(s: &Story) -> Person {
    Person::editor(s).set("GREETING", "hello")
}

#[tokio::test]
async fn a_plan_is_printed_and_carried_out() {
    let s = Story::today().await;
    let person = person(&s);
    let file = person.write("a.yaml", FILE);
    let plan = person.run(&["diff", "-f", &file]).await;
    assert_eq!(plan.code, 1);
    let shown = plan.out.replace(&file, "FILE");
    assert!(shown.contains("+ create a (FILE:4)\n") && shown.contains("+ max_attempts: 3\n"), "{shown}");
    person.ok(&["apply", "-f", &file]).await;
    assert_eq!(person.json(&["workflow", "get", "a"]).await["action"]["message"], "a hello");

    // A field that the file leaves out gets its default again.
    person.ok(&["workflow", "edit", "a", "--set", "spread_secs=60", "--description", "changed elsewhere"]).await;
    let file = person.write("a.yaml", &FILE.replace("0 9", "0 10"));
    let plan = person.run(&["diff", "-f", &file]).await;
    assert!(plan.out.contains("~ change a") && plan.out.contains("~ spread_secs: 60 -> 0"), "{}", plan.out);
    assert!(plan.out.contains("~ cron_schedule: \"0 9 * * *\" -> \"0 10 * * *\""), "{}", plan.out);
    assert!(plan.out.contains("Plan: 0 to create, 1 to change, 0 to archive, 1 unchanged."), "{}", plan.out);
    person.ok(&["apply", "-f", &file]).await;
    assert_eq!(person.run(&["diff", "-f", &file]).await.code, 0);
    s.end().await;
}

/// What a file no longer has is gone: a label, a member of the inputs, and the fields of another action.
#[tokio::test]
async fn members_that_a_file_drops_are_removed() {
    let s = Story::today().await;
    let person = person(&s);
    let before = "  - name: b\n    starting_inputs: {x: {one: 1, two: 2}}";
    let file = person.write("a.yaml", &FILE.replace("  - name: b", before));
    person.ok(&["apply", "-f", &file]).await;
    let after = "  - name: b\n    starting_inputs: {x: {two: 2}}";
    let file = person.write(
        "a.yaml",
        &FILE
            .replace("  - name: b", after)
            .replace("tier: gold", "level: one")
            .replace("{type: log, message: b}", "{type: http, method: POST, url: \"https://example.com/b\"}"),
    );
    person.ok(&["apply", "-f", &file]).await;
    let b = person.json(&["workflow", "get", "b"]).await;
    assert_eq!(b["labels"], json!({"level": "one", "owner": "payroll"}));
    assert_eq!(b["starting_inputs"], json!({"x": {"two": 2}}));
    assert_eq!((&b["action"]["type"], &b["action"]["message"]), (&json!("http"), &json!(null)));
    assert_eq!(person.run(&["diff", "-f", &file]).await.code, 0);
    s.end().await;
}

/// A header's value is write-only: null in a file keeps the stored one, and a header that is in no file is removed.
#[tokio::test]
async fn a_header_of_null_keeps_its_value() {
    let s = Story::today().await;
    let person = person(&s);
    let with = |headers: &str| {
        let action = format!("{{type: http, method: POST, url: \"https://example.com/b\", headers: {headers}}}");
        FILE.replace("{type: log, message: b}", &action)
    };
    let file = person.write("a.yaml", &with("{x-one: value, x-two: value}"));
    person.ok(&["apply", "-f", &file]).await;
    let file = person.write("a.yaml", &with("{x-one: null, x-two: null}"));
    assert_eq!(person.run(&["diff", "-f", &file]).await.code, 0);
    let file = person.write("a.yaml", &with("{x-one: null}"));
    person.ok(&["apply", "-f", &file]).await;
    assert_eq!(person.json(&["workflow", "get", "b"]).await["action"]["headers"], json!({"x-one": null}));
    s.end().await;
}

/// A list leaves out inputs and bodies of more than 1 KiB: the plan reads them completely.
#[tokio::test]
async fn large_members_that_a_file_drops_are_removed() {
    let s = Story::today().await;
    let person = person(&s);
    let pad = "x".repeat(2_000);
    let with = |inputs: &str, body: &str| {
        let action =
            format!("{{type: http, method: POST, url: \"https://example.com/b\", body: {{pad: {pad}, {body}}}}}");
        FILE.replace("  - name: b", &format!("  - name: b\n    starting_inputs: {{pad: {pad}, {inputs}}}"))
            .replace("{type: log, message: b}", &action)
    };
    let pin = "pin: {secret: \"1234\"}";
    let file =
        person.write("a.yaml", &with("include_contractors: true, x: {one: 1, two: 2}", &format!("gone: 1, {pin}")));
    person.ok(&["apply", "-f", &file]).await;
    let file = person.write("a.yaml", &with("x: {two: 2}", "pin: {secret: null}"));
    let plan = person.run(&["diff", "-f", &file]).await;
    assert!(plan.code == 1 && plan.out.contains("1 to change"), "{plan:?}");
    person.ok(&["apply", "-f", &file]).await;
    let b = person.json(&["workflow", "get", "b"]).await;
    assert_eq!(b["starting_inputs"], json!({"pad": pad, "x": {"two": 2}}));
    assert_eq!(b["action"]["body"], json!({"pad": pad, "pin": {"secret": null}}));
    assert_eq!(s.count("SELECT count(*) FROM workflows WHERE action #>> '{body,pin,secret}' = '1234'").await, 1);
    assert_eq!(person.run(&["diff", "-f", &file]).await.code, 0);
    // What is exported has the same nulls.
    let exported = person.write("b.yaml", &person.ok(&["export", "--owner", "payroll"]).await);
    assert_eq!(person.run(&["diff", "-f", &exported]).await.code, 0);
    s.end().await;
}

/// A new workflow has the nulls of its file, and keeps them. Where a null would be lost, the plan says so.
#[tokio::test]
async fn nulls_arrive_or_are_refused() {
    let s = Story::today().await;
    let person = person(&s);
    let with = |inputs: &str| FILE.replace("  - name: b", &format!("  - name: b\n    starting_inputs: {inputs}"));
    for inputs in
        [json!({"limit": null, "of": [null, {"x": null}], "n": 1}), json!({"limit": null, "of": [null], "n": 2})]
    {
        let file = person.write("a.yaml", &with(&inputs.to_string()));
        person.ok(&["apply", "-f", &file]).await;
        assert_eq!(person.json(&["workflow", "get", "b"]).await["starting_inputs"], inputs);
        assert_eq!(person.run(&["diff", "-f", &file]).await.code, 0);
    }
    let file = person.write("a.yaml", &with("{limit: null, n: null}"));
    let said = person.run(&["apply", "-f", &file]).await;
    assert!(said.code == 1 && said.out.contains("starting_inputs.n cannot become null"), "{said:?}");
    assert_eq!(person.json(&["workflow", "get", "b"]).await["starting_inputs"]["n"], 2);

    // Inputs that are one secret.
    for inputs in ["{secret: \"1234\"}", "{secret: null}"] {
        let file = person.write("a.yaml", &with(inputs));
        person.ok(&["apply", "-f", &file]).await;
        assert_eq!(s.count("SELECT count(*) FROM workflows WHERE starting_inputs ->> 'secret' = '1234'").await, 1);
    }
    s.end().await;
}

#[tokio::test]
async fn prune_touches_only_the_owners() {
    let s = Story::today().await;
    let person = person(&s);
    let file = person.write("a.yaml", FILE);
    person.ok(&["apply", "-f", &file]).await;
    person.ok(&["workflow", "create", "manual", "--log", "m"]).await;
    person.ok(&["workflow", "create", "of another", "--log", "m", "--label", "owner=shop"]).await;
    let shorter = person.write("b.yaml", &FILE[..FILE.find("  - name: b").unwrap()]);
    let plan = person.run(&["apply", "-f", &shorter, "--prune", "--dry-run"]).await;
    assert!(plan.out.contains("- archive b (in no file)") && plan.out.contains("1 to archive"), "{plan:?}");
    assert_eq!(person.json(&["workflow", "get", "b"]).await["state"], "active");
    person.ok(&["apply", "-f", &shorter, "--prune"]).await;
    let left = person.json(&["workflow", "ls", "--sort", "name"]).await;
    let names: Vec<_> = left.as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["a", "manual", "of another"]);
    let empty = person.write("empty.yaml", "version: cronbox/v1\nowner: payroll\nworkflows: []\n");
    let plan = person.run(&["apply", "-f", &empty, "--prune", "--dry-run"]).await;
    assert!(plan.out.contains("- archive a (in no file)") && plan.out.contains("1 to archive"), "{plan:?}");
    let unowned = person.write("c.yaml", &FILE.replace("owner: payroll\n", ""));
    let said = person.run(&["apply", "-f", &unowned, "--prune"]).await;
    assert!(said.code == 1 && said.err.contains("--prune needs `owner:`"), "{said:?}");
    s.end().await;
}

/// Two repositories have a workflow of the same name: neither takes it from the other by accident.
#[tokio::test]
async fn workflows_of_other_owners_are_refused() {
    let s = Story::today().await;
    let person = person(&s);
    let file = person.write("a.yaml", FILE);
    person.ok(&["apply", "-f", &file]).await;
    let foreign = FILE.replace("owner: payroll", "owner: reports").replace("0 9", "0 17");
    let unowned = FILE.replace("owner: payroll\n", "");
    for text in [&foreign, &unowned] {
        let other = person.write("other.yaml", text);
        for (word, code) in [("apply", 1), ("delete", 1), ("diff", 2)] {
            let said = person.run(&[word, "-f", &other]).await;
            assert!(said.code == code && said.out.contains("belongs to the owner payroll"), "{word}: {said:?}");
        }
    }
    assert_eq!(person.run(&["diff", "-f", &file]).await.code, 0, "nothing changed");
    let other = person.write("other.yaml", &foreign);
    person.ok(&["apply", "-f", &other, "--take-over"]).await;
    let a = person.json(&["workflow", "get", "a"]).await;
    assert_eq!((&a["cron_schedule"], &a["labels"]["owner"]), (&json!("0 17 * * *"), &json!("reports")));
    person.ok(&["delete", "-f", &file, "--take-over"]).await;
    assert_eq!(s.count("SELECT count(*) FROM workflows WHERE state = 'archived'").await, 2);
    s.end().await;
}

/// The files of one owner name one team: what the other team has of this owner is in files that were not given.
#[tokio::test]
async fn prune_keeps_to_the_teams_of_each_owner() {
    let s = Story::today().await;
    let person = Person::admin(&s).set("GREETING", "hello");
    person.ok(&["team", "create", "shop"]).await;
    let of_shop = FILE.replace("owner: payroll", "owner: billing\nteam: shop");
    let of_team = FILE.replace("owner: payroll", "owner: payroll\nteam: team");
    let elsewhere = of_team.replace("owner: payroll", "owner: billing").replace("name: ", "name: other ");
    let files = [("shop.yaml", &of_shop), ("team.yaml", &of_team), ("else.yaml", &elsewhere)];
    let [of_shop, of_team, elsewhere] = files.map(|(name, text)| person.write(name, text));
    person.ok(&["apply", "-f", &of_shop, "-f", &of_team, "-f", &elsewhere]).await;
    let plan = person.run(&["apply", "-f", &of_shop, "-f", &of_team, "--prune", "--dry-run"]).await;
    assert!(plan.code == 0 && plan.out.contains("0 to archive, 4 unchanged"), "{plan:?}");
    let empty = person.write("else.yaml", "version: cronbox/v1\nowner: billing\nteam: team\nworkflows: []\n");
    let plan = person.run(&["apply", "-f", &of_shop, "-f", &empty, "--prune", "--dry-run"]).await;
    assert!(plan.out.contains("2 to archive, 2 unchanged"), "{plan:?}");
    s.end().await;
}

/// The parser compares names; only the app knows that a name and an id are the same team.
#[tokio::test]
async fn one_workflow_by_two_names_of_its_team() {
    let s = Story::today().await;
    let person = person(&s);
    let named = person.write("a.yaml", &FILE.replace("owner: payroll", "team: team"));
    let team = person.json(&["me"]).await["teams"][0]["team_id"].clone();
    let numbered =
        FILE.replace("owner: payroll\n", "").replace("  - name: ", &format!("  - team_id: {team}\n    name: "));
    let numbered = person.write("b.yaml", &numbered);
    let said = person.run(&["apply", "-f", &named, "-f", &numbered]).await;
    assert!(said.code == 1 && said.err.contains(&format!("name: {named}:4 has the same team and name")), "{said:?}");
    assert_eq!(s.count("SELECT count(*) FROM workflows").await, 0);
    s.end().await;
}

/// The plan is old once another person has edited the workflow: the edit is not lost, and the others are archived.
#[tokio::test]
async fn an_edit_after_the_plan_is_kept() {
    let s = Story::today().await;
    let person = person(&s);
    let file = person.write("a.yaml", FILE);
    person.ok(&["apply", "-f", &file]).await;
    let b = WorkflowId(person.json(&["workflow", "get", "b"]).await["id"].as_i64().unwrap());
    // The archive of `a`, the first step of the plan, waits for this lock.
    let mut lock = db::begin_transaction(&s.pool).await.unwrap();
    sqlx::query("SELECT id FROM workflows WHERE name = 'a' FOR UPDATE").execute(&mut *lock).await.unwrap();
    let edited = async {
        s.until(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
            1,
        )
        .await;
        // No command: the archive waits 5 s at most, and a process starts slowly on a loaded machine.
        s.edit(b, json!({"description": "still needed"})).await;
        lock.rollback().await.unwrap();
    };
    let words = ["delete", "-f", file.as_str()];
    let (said, ()) = tokio::join!(person.run(&words), edited);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("cronbox: b (") && said.err.contains("version_mismatch"), "{said:?}");
    assert!(said.out.contains("Applied: 1 done, 1 failed."), "{said:?}");
    let left = person.json(&["workflow", "ls"]).await;
    assert_eq!((left.as_array().unwrap().len(), &left[0]["description"]), (1, &json!("still needed")));
    s.end().await;
}

/// A refused workflow is reported with its line; the others are applied.
#[tokio::test]
async fn a_part_that_fails_is_reported() {
    let s = Story::today().await;
    let person = person(&s);
    let file = person.write("a.yaml", &FILE.replace("0 9", "61 9"));
    let said = person.run(&["apply", "-f", &file]).await;
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("! refused a (") && said.out.contains("61 is above 59"), "{}", said.out);
    assert!(said.out.contains("Applied: 1 done, 1 failed."), "{}", said.out);
    assert_eq!(person.json(&["workflow", "get", "b"]).await["max_attempts"], 3);
    s.end().await;
}

/// A workflow that is in no file may have another name there: it stays while the app refuses the new one.
#[tokio::test]
async fn a_refused_workflow_prunes_nothing() {
    let s = Story::today().await;
    let person = person(&s);
    let file = person.write("a.yaml", FILE);
    person.ok(&["apply", "-f", &file]).await;
    let renamed = FILE.replace("name: b", "name: c").replace("max_attempts: 3", "max_attempts: 99");
    // With and without another change.
    for text in [renamed.clone(), renamed.replace("0 9", "0 10")] {
        let file = person.write("a.yaml", &text);
        let said = person.run(&["apply", "-f", &file, "--prune"]).await;
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.out.contains("! refused c (") && said.out.contains("0 to archive"), "{said:?}");
        assert!(said.out.contains("Not pruned, because a workflow is refused: b.\n"), "{said:?}");
        assert_eq!(person.json(&["workflow", "get", "b"]).await["state"], "active");
    }
    assert_eq!(person.json(&["workflow", "get", "a"]).await["cron_schedule"], "0 10 * * *");
    s.end().await;
}

/// A pipeline lets a merge request pass that changes something, and none that the app refuses or that was not compared.
#[tokio::test]
async fn a_difference_is_no_failure() {
    let s = Story::today().await;
    let person = person(&s);
    let file = person.write("a.yaml", FILE);
    assert_eq!(person.run(&["diff", "-f", &file]).await.code, 1);
    person.ok(&["apply", "-f", &file]).await;
    assert_eq!(person.run(&["diff", "-f", &file, "--prune"]).await.code, 0);
    let refused = person.write("refused.yaml", &FILE.replace("max_attempts: 3", "max_attempts: 99"));
    let said = person.run(&["diff", "-f", &refused]).await;
    assert!(said.code == 2 && said.out.contains("! refused"), "{said:?}");
    let unanswered = person.run(&["diff", "-f", &file, "--url", "http://127.0.0.1:9", "--key", "other"]).await;
    assert!(unanswered.code == 2 && unanswered.err.contains("does not answer"), "{unanswered:?}");
    let empty = person.write("empty.yaml", "version: cronbox/v1\nowner: payroll\nworkflows: []\n");
    let pruned = person.run(&["diff", "-f", &empty, "--prune"]).await;
    assert!(pruned.code == 1 && pruned.out.contains("- archive a (in no file)"), "{pruned:?}");
    s.end().await;
}

/// A merge request that removes an entry shows what the main branch will archive, although the plan has no step for it.
#[tokio::test]
async fn a_plan_names_what_prune_would_archive() {
    const SENTENCE: &str = "cronbox: in none of these files, so that --prune would archive it: ";
    let s = Story::today().await;
    let person = person(&s);
    let file = person.write("a.yaml", FILE);
    person.ok(&["apply", "-f", &file]).await;
    person.ok(&["workflow", "create", "manual", "--log", "m"]).await;
    let complete = person.run(&["diff", "-f", &file]).await;
    assert!(complete.code == 0 && complete.err.is_empty(), "{complete:?}");
    let shorter = person.write("b.yaml", &FILE[..FILE.find("  - name: b").unwrap()]);
    let empty = person.write("empty.yaml", "version: cronbox/v1\nowner: payroll\nworkflows: []\n");
    for (file, names) in [(&shorter, "b\n"), (&empty, "a, b\n")] {
        for words in [&["diff"][..], &["apply"], &["diff", "-o", "json"]] {
            let said = person.run(&[words, &["-f", file]].concat()).await;
            assert_eq!((said.code, &said.err), (0, &format!("{SENTENCE}{names}")), "{words:?}: {said:?}");
            assert!(!said.out.contains("archive b"), "{words:?}: {said:?}");
        }
    }
    let pruned = person.run(&["diff", "-f", &shorter, "--prune"]).await;
    assert!(pruned.code == 1 && pruned.err.is_empty(), "{pruned:?}");
    // An admin's key has no team of its own; without --prune a file without workflows needs none.
    let admin = Person::admin(&s).run(&["diff", "-f", &empty]).await;
    assert!(admin.code == 0 && admin.err.is_empty(), "{admin:?}");
    s.end().await;
}

/// A new name keeps the id, the schedule and the history, in one edit with the other changes. At the limit of the team, too.
#[tokio::test]
async fn a_previous_name_renames_the_workflow() {
    let s = Story::today().await;
    let person = person(&s);
    let file = person.write("a.yaml", FILE);
    person.ok(&["apply", "-f", &file]).await;
    let before = person.json(&["workflow", "get", "a"]).await;
    let limits = format!("/api/v1/teams/{}/limits", s.keys.team_id);
    let request = s.admin().request(reqwest::Method::PUT, &limits);
    tests::send_request(request.json(&json!({ "workflows": 2 }))).await.expect(200);
    let renamed = "name: c\n    previous_name: a\n    max_attempts: 2";
    let file = person.write("a.yaml", &FILE.replace("name: a", renamed));
    for (words, code) in [(&["diff"][..], 1), (&["diff", "--prune"][..], 1), (&["apply", "--dry-run"][..], 0)] {
        let said = person.run(&[words, &["-f", file.as_str()]].concat()).await;
        assert!(said.code == code && said.err.is_empty(), "{words:?}: {said:?}");
        for line in [
            "~ change c (",
            "~ name: \"a\" -> \"c\"\n",
            "~ max_attempts: 1 -> 2\n",
            "Plan: 0 to create, 1 to change, 0 to archive, 1 unchanged.\n",
        ] {
            assert!(said.out.contains(line), "{words:?}: {line}: {said:?}");
        }
    }
    let said = person.run(&["diff", "-f", &file, "-o", "json"]).await;
    let plan: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let step = &plan["steps"][0];
    let (old, new) = (&step["changes"][0]["before"]["name"], &step["changes"][0]["after"]["name"]);
    assert_eq!((&step["act"], &step["name"], old, new), (&json!("change"), &json!("c"), &json!("a"), &json!("c")));

    person.ok(&["apply", "-f", &file, "--prune"]).await;
    let after = person.json(&["workflow", "get", "c"]).await;
    for field in ["id", "created_on", "cron_schedule", "revision", "state"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    let next = before["version"].as_i64().map(|version| version + 1);
    assert_eq!((after["version"].as_i64(), &after["max_attempts"]), (next, &json!(2)), "it is one edit");
    assert_eq!(s.count("SELECT count(*) FROM workflows").await, 2);
    // The field stays in the file, and has no effect any more.
    for words in [&["diff", "--prune"][..], &["apply"]] {
        let said = person.run(&[words, &["-f", file.as_str()]].concat()).await;
        assert!(said.code == 0 && said.err.is_empty() && said.out.contains("2 unchanged"), "{words:?}: {said:?}");
    }
    let exported = person.ok(&["export", "--owner", "payroll"]).await;
    assert!(exported.contains("name: c\n") && !exported.contains("previous_name"), "{exported}");
    s.end().await;
}

/// If the new name exists already, nothing is renamed, and each command says that the previous one is still there.
#[tokio::test]
async fn a_previous_name_that_exists_is_named() {
    let s = Story::today().await;
    let person = person(&s);
    let file = person.write("a.yaml", FILE);
    person.ok(&["apply", "-f", &file]).await;
    let file = person.write("a.yaml", &FILE.replace("name: b", "name: c\n    previous_name: b"));
    // The workflow to rename exists, and is not what the file defines by its name.
    let said = person.run(&["delete", "-f", &file, "--dry-run"]).await;
    assert!(said.code == 0 && said.out.contains("1 to archive, 1 unchanged"), "{said:?}");
    assert!(said.err.contains(&format!("{file}:8: previous_name: b exists, and only c is archived")), "{said:?}");

    person.ok(&["workflow", "create", "c", "--log", "m"]).await;
    let sentence = format!("cronbox: {file}:8: previous_name: b still exists beside c, and runs too: ");
    for (word, code) in [("diff", 1), ("apply", 0)] {
        let said = person.run(&[word, "-f", &file]).await;
        assert!(said.code == code && said.err.contains(&sentence), "{word}: {said:?}");
    }
    assert_eq!(person.json(&["workflow", "get", "c"]).await["max_attempts"], 3);
    assert_eq!(person.json(&["workflow", "get", "b"]).await["state"], "active");
    let pruned = person.run(&["apply", "-f", &file, "--prune"]).await;
    assert!(pruned.code == 0 && pruned.err.is_empty(), "{pruned:?}");
    assert!(pruned.out.contains("- archive b (in no file)"), "{pruned:?}");

    // An archived workflow is final: with and without the new one, nothing is renamed.
    let same = person.run(&["diff", "-f", &file]).await;
    assert!(same.code == 0 && same.err.is_empty(), "{same:?}");
    person.ok(&["workflow", "archive", "c"]).await;
    let created = person.run(&["apply", "-f", &file]).await;
    assert!(created.code == 0 && created.err.is_empty() && created.out.contains("+ create c ("), "{created:?}");
    s.end().await;
}

/// One workflow of the app cannot become two, and what belongs to another owner keeps its name.
#[tokio::test]
async fn previous_names_of_others_are_refused() {
    let s = Story::today().await;
    let person = person(&s);
    let file = person.write("a.yaml", FILE);
    person.ok(&["apply", "-f", &file]).await;
    let action = "action: {type: log, message: c}";
    let entry = |name: &str, previous: &str| format!("  - name: {name}\n    previous_name: {previous}\n    {action}\n");
    let one = person.write("one.yaml", &format!("workflows:\n{}", entry("c", "b")));
    let team = person.json(&["me"]).await["teams"][0]["team_id"].clone();
    let numbered = entry("c", "b").replace("  - ", &format!("  - team_id: {team}\n    "));
    for (text, code, words) in [
        (entry("d", "d"), 2, "OTHER:3: previous_name: it is the name of this workflow"),
        (entry("d", "b"), 2, "OTHER:3: previous_name: ONE:3 has it as its previous_name: remove one of them"),
        (entry("b", "x"), 2, "ONE:3: previous_name: OTHER:2 has it as its name: remove one of them"),
        (entry("d", "e") + &entry("e", "f"), 2, "OTHER:3: previous_name: line 5 has it as its name"),
        (numbered.replace("name: c", "name: d"), 1, "OTHER:4: previous_name: ONE:3 has it as its previous_name"),
    ] {
        let other = person.write("other.yaml", &format!("workflows:\n{text}"));
        let said = person.run(&["apply", "-f", &one, "-f", &other]).await;
        let shown = said.err.replace(&one, "ONE").replace(&other, "OTHER");
        assert!(said.code == code && shown.contains(words), "{words}: {said:?}");
    }
    assert_eq!(s.count("SELECT count(*) FROM workflows WHERE name IN ('a', 'b') AND version = 1").await, 2);

    let foreign = person.write("foreign.yaml", &format!("owner: reports\nworkflows:\n{}", entry("c", "b")));
    let said = person.run(&["apply", "-f", &foreign]).await;
    assert!(said.code == 1 && said.out.contains("! refused c ("), "{said:?}");
    assert!(said.out.contains("b belongs to the owner payroll: remove previous_name"), "{said:?}");
    person.ok(&["apply", "-f", &foreign, "--take-over"]).await;
    assert_eq!(person.json(&["workflow", "get", "c"]).await["labels"]["owner"], "reports");
    assert_eq!(s.count("SELECT count(*) FROM workflows").await, 2);
    s.end().await;
}

/// Each of two new workflows would be within the limit of the team, so the plan is good; the second one fails.
#[tokio::test]
async fn a_failed_part_prunes_nothing() {
    let s = Story::today().await;
    let person = person(&s);
    let file = person.write("a.yaml", FILE);
    person.ok(&["apply", "-f", &file]).await;
    let limits = format!("/api/v1/teams/{}/limits", s.keys.team_id);
    let limit = |workflows: i64| {
        let request = s.admin().request(reqwest::Method::PUT, &limits);
        tests::send_request(request.json(&json!({ "workflows": workflows })))
    };
    limit(3).await.expect(200);
    let new = "  - name: c\n    action: {type: log, message: c}\n  - name: d";
    let file = person.write("a.yaml", &FILE.replace("  - name: b", new));
    let said = person.run(&["apply", "-f", &file, "--prune"]).await;
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("2 to create, 0 to change, 1 to archive, 1 unchanged."), "{said:?}");
    assert!(said.out.contains("Applied: 1 done, 1 failed."), "{said:?}");
    assert!(said.err.contains("limit_workflows"), "{said:?}");
    assert!(said.err.contains("nothing was pruned, because a part failed: b\n"), "{said:?}");
    assert_eq!(person.json(&["workflow", "get", "b"]).await["state"], "active");
    limit(4).await.expect(200);
    person.ok(&["apply", "-f", &file, "--prune"]).await;
    let left = person.json(&["workflow", "ls", "--sort", "name"]).await;
    let names: Vec<_> = left.as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["a", "c", "d"]);
    s.end().await;
}

/// All complaints about all files come at once, and nothing is sent.
#[tokio::test]
async fn wrong_files_change_nothing() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    person.write("dir/a.yaml", "workflows:\n  - cron_schedule: */5 * * * *\n");
    person.write("dir/b.yml", FILE);
    let said = person.run(&["apply", "-f", person.home.join("dir").to_str().unwrap()]).await;
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("a.yaml:2: ") && said.err.contains("quote a value"), "{}", said.err);
    assert!(said.err.contains("b.yml:6: action: the environment has no variable GREETING"), "{}", said.err);
    assert_eq!(s.count("SELECT count(*) FROM workflows").await, 0);
    s.end().await;
}

/// What is paused does not run in the environment to which it is copied, not even once.
#[tokio::test]
async fn paused_workflows_are_exported_as_paused() {
    let s = Story::today().await;
    let person = person(&s);
    person
        .ok(&["workflow", "create", "payroll", "--log", "m", "--cron", "* * * * *", "--label", "owner=payroll"])
        .await;
    person.ok(&["workflow", "pause", "payroll", "--reason", "stocktaking"]).await;
    let exported = person.ok(&["export", "--owner", "payroll"]).await;
    assert!(exported.contains("paused: true\n"), "{exported}");
    let file = person.write("a.yaml", &exported);
    assert_eq!(person.run(&["diff", "-f", &file]).await.code, 0);
    assert_eq!(person.json(&["workflow", "get", "payroll"]).await["pause_reason"], "stocktaking");
    // As in another environment.
    person.ok(&["delete", "-f", &file]).await;
    person.ok(&["apply", "-f", &file]).await;
    let active = "SELECT count(*) FROM schedule_versions v JOIN workflows w ON w.id = v.workflow_id
                   WHERE w.state <> 'archived' AND v.state = 'active'";
    assert_eq!(person.json(&["workflow", "get", "payroll"]).await["state"], "paused");
    assert_eq!(s.count(active).await, 0);

    // An `apply` that ended before the pause has left this one.
    person.ok(&["workflow", "create", "nightly", "--log", "m", "--label", "owner=payroll"]).await;
    let file = person.write("b.yaml", &exported.replace("name: payroll", "name: nightly"));
    let plan = person.run(&["diff", "-f", &file]).await;
    assert!(plan.out.contains("~ change nightly (") && plan.out.contains("), paused\n"), "{plan:?}");
    person.ok(&["apply", "-f", &file]).await;
    let nightly = person.json(&["workflow", "get", "nightly"]).await;
    assert_eq!((&nightly["state"], &nightly["cron_schedule"]), (&json!("paused"), &json!("* * * * *")));
    assert_eq!(s.count(active).await, 0);
    s.end().await;
}

/// Any editor writes texts by the API. In an exported file they name no variable of the person or the CI that applies it, and no
/// character of them changes.
#[tokio::test]
async fn exported_texts_stay_as_they_are() {
    let s = Story::today().await;
    let person = person(&s);
    let text = "a\n\tb\r\nc ${env:GREETING} $${env:CRONBOX_KEY} $$${env: \u{200f}\u{2028}#: 'd\"";
    let body = json!({"name": "${env:GREETING}", "description": text, "labels": {"owner": "payroll"},
        "action": {"type": "log", "message": text}, "starting_inputs": {"a": ["${env:HOME} ${secret:b}", text, "m\n\tn \u{200f}"]}});
    s.editor().post("/api/v1/workflows", &body).await.expect(201);
    let exported = person.ok(&["export", "--owner", "payroll"]).await;
    let file = person.write("a.yaml", &exported);
    let same = person.ok(&["diff", "-f", &file]).await;
    assert!(same.contains("0 to create, 0 to change, 0 to archive, 1 unchanged"), "{same}\n{exported}");
    person.ok(&["delete", "-f", &file]).await;
    person.ok(&["apply", "-f", &file]).await;
    let read = person.json(&["workflow", "get", "${env:GREETING}"]).await;
    for field in ["description", "action", "starting_inputs"] {
        assert_eq!(read[field], body[field], "{exported}");
    }
    s.end().await;
}

#[tokio::test]
async fn what_is_exported_can_be_applied() {
    let s = Story::today().await;
    let person = person(&s);
    let file = person.write("a.yaml", FILE);
    person.ok(&["apply", "-f", &file]).await;
    let exported = person.ok(&["export", "--owner", "payroll"]).await;
    assert!(exported.starts_with("version: cronbox/v1\nowner: payroll\nworkflows:\n"), "{exported}");
    assert!(exported.contains("max_attempts: 3") && !exported.contains("overlap_policy"), "{exported}");
    let copy = person.write("copy.yaml", &exported);
    let same = person.ok(&["diff", "-f", &copy]).await;
    assert!(same.contains("0 to create, 0 to change, 0 to archive, 2 unchanged"), "{same}");
    let deleted = person.ok(&["delete", "-f", &copy]).await;
    assert!(deleted.contains("2 to archive") && deleted.contains("Applied: 2 done, 0 failed."), "{deleted}");
    assert_eq!(person.json(&["workflow", "ls"]).await, json!([]));
    s.end().await;
}
