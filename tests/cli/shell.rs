//! What a shell needs: completions, manual pages, exit codes, and an output that programs read.

use serde_json::{Value, json};
use tests::Story;

use crate::Person;

#[tokio::test]
async fn completions_and_manual_pages_are_made() {
    let person = Person::without_key();
    for (shell, part) in [("bash", "_cronbox()"), ("zsh", "#compdef cronbox"), ("fish", "complete -c cronbox")] {
        let text = person.ok(&["completions", shell]).await;
        assert!(text.contains(part) && text.contains("workflow"), "{shell}: {}", &text[..200]);
    }
    let bash = person.write("completions.bash", &person.ok(&["completions", "bash"]).await);
    let checked = tokio::process::Command::new("bash").args(["-n", &bash]).status().await.unwrap();
    assert!(checked.success());
    person.ok(&["man", "pages"]).await;
    let page = std::fs::read_to_string(person.home.join("pages/cronbox-workflow-fire.1")).unwrap();
    assert!(page.contains("Run it now") && page.contains("\\-\\-wait"), "{page}");
}

/// 0 = as it must be, 1 = failed, 2 = asked wrongly; an error says what to do.
#[tokio::test]
async fn exit_codes_say_what_is_wrong() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    for (words, code, part) in [
        (&["workflow", "get", "987654321"][..], 2, "not_found"),
        (&["workflow", "get", "nothing"], 1, "`cronbox workflow ls` lists them"),
        (&["workflow", "frobnicate"], 2, "unrecognized subcommand"),
        (&["run", "ls", "--last", "soon"], 2, "write 90s, 30m, 24h or 7d"),
        (&["workflow", "create", "a"], 1, "needs an action: send --target"),
        (&["key", "ls"], 1, "`cronbox me` shows what the key permits"),
    ] {
        let said = person.run(words).await;
        assert_eq!(said.code, code, "{words:?}: {said:?}");
        assert!(said.err.contains(part), "{words:?}: {said:?}");
    }
    let unreachable = Person::without_key().set("CRONBOX_URL", "http://127.0.0.1:9").set("CRONBOX_KEY", "k");
    let said = unreachable.run(&["me"]).await;
    assert!(said.code == 1 && said.err.contains("check CRONBOX_URL"), "{said:?}");
    s.end().await;
}

/// The same list in each form; nothing controls the terminal.
#[tokio::test]
async fn every_form_has_the_same_objects() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    for name in ["a", "b"] {
        person
            .ok(&[
                "workflow",
                "create",
                name,
                "--log",
                "m",
                "--description",
                "x\u{1b}[31m".trim_end_matches("\u{1b}[31m"),
            ])
            .await;
    }
    let json: Value = person.json(&["workflow", "ls"]).await;
    let yaml = person.ok(&["workflow", "ls", "-o", "yaml"]).await;
    assert_eq!(yaml.matches("\n  name: ").count() + yaml.matches("- name: ").count(), 2, "{yaml}");
    let ids = person.ok(&["workflow", "ls", "-o", "name"]).await;
    let expected: Vec<String> = json.as_array().unwrap().iter().map(|one| one["id"].to_string()).collect();
    assert_eq!(ids.lines().collect::<Vec<_>>(), expected);
    let table = person.ok(&["workflow", "ls"]).await;
    assert!(table.starts_with("ID ") && !table.contains('\u{1b}'), "{table}");
    assert!(person.ok(&["workflow", "ls", "-o", "wide"]).await.lines().next().unwrap().ends_with("UPDATED"));
    s.end().await;
}

/// Programs get all pages, and people the first objects with the sentence that there are more.
#[tokio::test]
async fn no_list_is_cut_without_a_word() {
    let s = Story::today().await;
    for at in 0..201 {
        s.create_with(json!({"name": format!("w{at}")})).await;
    }
    let person = Person::editor(&s);
    for form in ["name", "yaml", "json"] {
        let said = person.run(&["workflow", "ls", "-o", form]).await;
        assert!(said.code == 0 && said.err.is_empty(), "{form}: {}", said.err);
        let count = match form {
            "name" => said.out.lines().count(),
            "yaml" => said.out.lines().filter(|line| line.starts_with("- ")).count(),
            _ => serde_json::from_str::<Vec<Value>>(&said.out).unwrap().len(),
        };
        assert_eq!(count, 201, "{form}");
    }
    let table = person.run(&["workflow", "ls"]).await;
    assert_eq!(table.out.lines().count(), 201, "a head and 200 rows");
    assert!(table.err.contains("only the first 200 are shown"), "{}", table.err);
    let two = person.run(&["workflow", "ls", "-o", "name", "--limit", "2"]).await;
    assert_eq!(two.out.lines().count(), 2, "{two:?}");
    assert!(two.err.contains("only the first 2 are shown"), "{two:?}");
    s.end().await;
}

/// What operators' commands printed before they had `-o`, for scripts; no help mentions it.
#[tokio::test]
async fn scripts_read_the_older_json() {
    let s = Story::today().await;
    let admin = Person::admin(&s);
    admin.ok(&["workflow", "create", "a", "--team", "1", "--log", "m", "--cron", "0 9 * * *"]).await;
    s.execute("INSERT INTO jobs (name, next_run) VALUES ('prune', cronbox_now())").await;
    s.job("audit").await;
    for (words, is_list) in [
        (&["audit", "ls"][..], true),
        (&["outbox", "ls"], true),
        (&["audit", "verify"], false),
        (&["drift", "show"], false),
    ] {
        let expected = admin.json(words).await;
        let lines = admin.ok(&[words, &["--json"]].concat()).await;
        let read: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(if is_list { Value::Array(read) } else { read[0].clone() }, expected, "{words:?}");
        assert!(!admin.ok(&[words, &["--help"]].concat()).await.contains("--json"), "{words:?}");
    }
    let jobs: Value = serde_json::from_str(&admin.ok(&["jobs", "--json"]).await).unwrap();
    assert_eq!(jobs["items"], admin.json(&["jobs"]).await);
    let both = admin.run(&["jobs", "--json", "-o", "yaml"]).await;
    assert!(both.code == 2 && both.err.contains("cannot be used with"), "{both:?}");
    s.publish().await;
    s.end().await;
}

/// docs/cli.md lists the commands as the program has them. `CRONBOX_UPDATE_CLI=1` writes them.
#[tokio::test]
async fn the_page_lists_every_command() {
    const MARK: &str = "<!-- cronbox reference -->\n";
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (prose, listed) = text.split_once(MARK).unwrap();
    let expected = Person::without_key().ok(&["reference"]).await;
    if crate::variable("CRONBOX_UPDATE_CLI").is_some() {
        std::fs::write(&page, format!("{prose}{MARK}{expected}")).unwrap();
        return;
    }
    assert!(listed == expected, "run CRONBOX_UPDATE_CLI=1 cargo test --workspace --test cli -- the_page_lists");
}
