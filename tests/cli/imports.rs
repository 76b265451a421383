//! Other schedulers' files become files that the app takes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use local::config::target_folder;
use serde_json::{Value, json};
use stand_in::{Clock, Options, StandIn, StandInServer};
use tests::Story;
use tokio::process::Command;

use crate::{Person, Said, data, variable};

/// Imports a file and asks the app whether it would take every workflow.
async fn assert_taken(s: &Story, person: &Person, words: &[&str], taken: usize, refused: usize) -> String {
    let imported = person.run(&[&["import"], words].concat()).await;
    let expected = format!("{taken} schedules taken over, {refused} not;");
    assert!(imported.err.contains(&expected), "{words:?}: {}", imported.err);
    assert_eq!(imported.code, i32::from(refused > 0), "{words:?}");
    assert_eq!(imported.out.matches("NOT TAKEN OVER").count(), refused, "each has its reason: {words:?}");
    let file = person.write("imported.yaml", &imported.out);
    let plan = person.run(&["diff", "-f", &file]).await;
    let expected = format!("Plan: {taken} to create, 0 to change, 0 to archive, 0 unchanged.");
    assert!(plan.out.contains(&expected), "{words:?}: {}\n{}", plan.out, plan.err);
    assert_eq!(s.count("SELECT count(*) FROM workflows").await, 0);
    imported.out
}

#[tokio::test]
async fn schedules_of_eventbridge_are_taken_over() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    let text = assert_taken(&s, &person, &["eventbridge", &data("eventbridge.json")], 24, 6).await;
    for part in [
        "it was DISABLED",
        "its flexible window of 15 min",
        "spread_secs: 900",
        "cron(0 9 ? * 2#1 *)",
        "timezone: Asia/Tokyo",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    s.end().await;
}

/// The block of commands of a page with this number, from 1.
fn block_of(page: &str, number: usize) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/migrate").join(page);
    let text = std::fs::read_to_string(file).unwrap();
    let (block, _) = text.split("```console\n").nth(number).unwrap().split_once("```").unwrap();
    block.to_owned()
}

/// Runs the first commands of a page, until `diff`, as a person pastes them into a shell.
async fn run_page(person: &Person, page: &str, variables: &[(&str, &str)]) -> Said {
    let block = block_of(page, 1);
    let (commands, _) = block.split_once("$ cronbox diff").unwrap();
    paste(person, commands, variables).await
}

/// Runs commands of a page in a shell. `aws` and others are looked for in the person's folder `bin`, and then in the venv.
async fn paste(person: &Person, commands: &str, variables: &[(&str, &str)]) -> Said {
    let commands: Vec<&str> = commands.lines().map(|line| line.strip_prefix("$ ").unwrap_or(line)).collect();
    let folders = [person.home.join("bin"), target_folder().join("debug"), target_folder().join("venv/bin")];
    let inherited = variable("PATH").unwrap();
    let path = folders.into_iter().chain(std::env::split_paths(&inherited));
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(commands.join("\n")).env_clear().env("PATH", std::env::join_paths(path).unwrap());
    shell.env("HOME", &person.home).envs(variables.iter().copied()).current_dir(&person.home).kill_on_drop(true);
    let output = shell.output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

/// `list-schedules` names those of all groups, and two groups may have a schedule of the same name.
#[tokio::test]
async fn the_page_about_eventbridge_reads_all_groups() {
    let served = StandInServer::start_anywhere(StandIn::new(Options::default(), Clock::System)).await.unwrap();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = async |path: &str, body: Value| {
        let answer = http.post(format!("{}{path}", served.endpoint)).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
    };
    let target = json!({"Arn": "arn:aws:lambda:us-east-1:123456789012:function:f", "RoleArn": "arn:aws:iam::123456789012:role/r"});
    let schedule =
        json!({"ScheduleExpression": "cron(0 9 * * ? *)", "FlexibleTimeWindow": {"Mode": "OFF"}, "Target": target});
    post("/schedules/payroll", schedule.clone()).await;
    post("/schedule-groups/billing", json!({})).await;
    let mut other = schedule;
    other["GroupName"] = json!("billing");
    other["ScheduleExpression"] = json!("cron(0 18 * * ? *)");
    other["EndDate"] = json!(4_102_444_800_i64);
    post("/schedules/payroll", other).await;

    let person = Person::without_key();
    let variables = [
        ("AWS_ENDPOINT_URL_SCHEDULER", served.endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", "local"),
        ("AWS_SECRET_ACCESS_KEY", "local"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_CONFIG_FILE", "/dev/null"),
    ];
    let said = run_page(&person, "eventbridge.md", &variables).await;
    assert!(said.code == 0 && said.err.contains("2 schedules taken over, 0 not;"), "{said:?}");
    let imported = std::fs::read_to_string(person.home.join("billing.yaml")).unwrap();
    for part in ["(0 9 * * ? *)", "(0 18 * * ? *)", "it was in the group billing", "2100-01-01T00:00:00Z"] {
        assert!(imported.contains(part), "{part}: {imported}");
    }
}

/// A schedule that cannot be read would be lost silently in a file of the others.
#[tokio::test]
async fn the_page_about_eventbridge_imports_all_or_nothing() {
    let person = Person::without_key();
    let answer = "{\"Name\": \"payroll\", \"ScheduleExpression\": \"rate(1 hour)\"}";
    // One that is not the last cannot be read; the list breaks off.
    for list in ["printf 'billing\\tpayroll\\ndefault\\tpayroll\\n'", "printf 'default\\tpayroll\\n'; exit 1"] {
        let aws = format!(
            "#!/bin/sh\ncase $2 in\nlist-schedules) {list};;\n*) [ \"$4\" = default ] && echo '{answer}';;\nesac\n"
        );
        let program = person.write("bin/aws", &aws);
        std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let said = run_page(&person, "eventbridge.md", &[]).await;
        assert_eq!(said.code, 1, "{said:?}");
        assert!(person.home.join("schedules.json").exists() && !person.home.join("billing.yaml").exists(), "{said:?}");
    }
}

/// The program of each page that prints the schedules, what it prints, and the workflow and the file that become of it.
const SCHEDULERS: [(&str, &str, &str, &str, &str); 4] = [
    ("crontab.md", "crontab", "echo '0 3 * * * /opt/job.sh'", "job.sh", "web01.yaml"),
    (
        "eventbridge.md",
        "aws",
        r#"case $2 in
           list-schedules) printf 'default\tpayroll\n';;
           *) echo '{"Name": "payroll", "ScheduleExpression": "rate(1 hour)"}';;
           esac"#,
        "payroll",
        "billing.yaml",
    ),
    (
        "kubernetes.md",
        "kubectl",
        r#"echo '{"items": [{"kind": "CronJob", "metadata": {"name": "report"}, "spec": {"schedule": "0 4 * * *"}}]}'"#,
        "report",
        "shop.yaml",
    ),
    ("pg-boss.md", "psql", r#"echo '[{"name": "mails", "cron": "0 5 * * *"}]'"#, "mails", "jobs.yaml"),
];

/// The old scheduler is still active after the first commands of a page, so that real actions would run each time twice.
#[tokio::test]
async fn pages_send_nothing_beside_the_old_scheduler() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    let variables = [("CRONBOX_URL", s.url()), ("CRONBOX_KEY", s.keys.editor.as_str()), ("PGBOSS", "postgres://none")];
    for (page, program, answer, name, file) in SCHEDULERS {
        let path = person.write(&format!("bin/{program}"), &format!("#!/bin/sh\n{answer}\n"));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let said = paste(&person, &block_of(page, 1), &variables).await;
        assert!(said.code == 0 && said.out.contains("Applied: 1 done, 0 failed."), "{page}: {said:?}");
        let workflow = person.json(&["workflow", "get", name]).await;
        assert_eq!((&workflow["state"], &workflow["action"]["type"]), (&json!("active"), &json!("log")), "{page}");

        // Two blocks later the old scheduler ends, and only then the file gets its target.
        let block = block_of(page, 3);
        let (commands, rest) = block.split_once("$ cronbox apply").unwrap();
        let said = paste(&person, commands, &variables).await;
        assert!(said.code == 0 && said.err.contains("each time runs twice"), "{page}: {said:?}");
        assert!(rest.contains("$ cronbox freeze lift"), "{page}");
        let text = std::fs::read_to_string(person.home.join(file)).unwrap();
        assert!(
            text.contains(&format!("name: {name}\n")) && text.contains("url: https://hooks.example.com/run"),
            "{text}"
        );
    }
    s.end().await;
}

#[tokio::test]
async fn cron_jobs_of_kubernetes_are_taken_over() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    let text = assert_taken(&s, &person, &["kubernetes", &data("cronjobs.yaml")], 18, 2).await;
    for part in [
        "overlap_policy: skip",
        "overlap_policy: replace",
        "it was suspended",
        "timezone: Europe/Paris",
        "startingDeadlineSeconds 10 is outside",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    s.end().await;
}

/// A job that was suspended since an incident must not start because it was migrated.
#[tokio::test]
async fn suspended_cron_jobs_never_become_active() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    let text = "kind: CronJob\nmetadata: {name: payroll}\nspec: {schedule: \"* * * * *\", suspend: true}\n";
    let imported = person.run_with(&["import", "kubernetes", "-"], text).await;
    assert!(imported.code == 0 && imported.err.contains("1 schedules taken over, 0 not;"), "{imported:?}");
    let file = person.write("a.yaml", &imported.out);
    let applied = person.ok(&["apply", "-f", &file]).await;
    assert!(applied.contains("), paused\n") && applied.contains("Applied: 1 done, 0 failed."), "{applied}");
    let payroll = person.json(&["workflow", "get", "payroll"]).await;
    assert_eq!((&payroll["state"], &payroll["cron_schedule"]), (&json!("paused"), &json!("* * * * *")));
    assert_eq!(s.count("SELECT count(*) FROM schedule_versions WHERE state = 'active'").await, 0);
    assert_eq!(person.run(&["diff", "-f", &file]).await.code, 0);
    person.ok(&["workflow", "resume", "payroll"]).await;
    person.ok(&["apply", "-f", &file]).await;
    assert_eq!(person.json(&["workflow", "get", "payroll"]).await["state"], "active", "it has a schedule");
    s.end().await;
}

/// With real actions a workflow may wait for the end of the old scheduler.
#[tokio::test]
async fn an_import_may_pause_all() {
    let person = Person::without_key();
    let words = ["import", "crontab", "-", "--target", "https://hooks.example/run"];
    let crontab = "0 3 * * * a\n0 4 * * * b\n";
    let active = person.run_with(&words, crontab).await;
    assert!(active.code == 0 && active.err.contains("or import with --paused; while both are active"), "{active:?}");
    let paused = person.run_with(&[&words[..], &["--paused"]].concat(), crontab).await;
    assert!(paused.code == 0 && !paused.err.contains("twice"), "{paused:?}");
    assert_eq!((active.out.matches("paused: true\n").count(), paused.out.matches("paused: true\n").count()), (0, 2));
}

#[tokio::test]
async fn workflows_of_github_are_taken_over() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    let mut taken = 0;
    for nth in 1..=20 {
        let several = if nth % 6 == 2 { 2 } else { 1 };
        let file = data(&format!("github_actions/{nth:02}.yml"));
        assert_taken(&s, &person, &["github-actions", &file], several, 0).await;
        taken += several;
    }
    assert_eq!(taken, 24);
    s.end().await;
}

/// The query of the page about pg-boss, on such a table.
#[tokio::test]
async fn schedules_of_pg_boss_are_taken_over() {
    const QUERY: &str = "SELECT coalesce(json_agg(s ORDER BY s.name), '[]') FROM pgboss.schedule s";
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/migrate/pg-boss.md");
    assert!(std::fs::read_to_string(page).unwrap().contains(&format!("-Atc \"{QUERY}\" > pg-boss.json")));
    let s = Story::today().await;
    s.execute(
        "CREATE SCHEMA pgboss;
         CREATE TABLE pgboss.schedule (
             name text, key text NOT NULL DEFAULT '', cron text NOT NULL, timezone text, data jsonb, options jsonb,
             created_on timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (name, key)
         );
         INSERT INTO pgboss.schedule VALUES
             ('billing', '', '0 9 */2 * 1', 'Europe/Paris', '{\"month\": \"May\"}', '{\"retryLimit\": 3}'),
             ('payroll', '', '0 5 9 * * 1-5', 'UTC', NULL, NULL),
             ('report', 'eu', '0 18 * * *', 'UTC', NULL, NULL),
             ('report', 'us', '0 6 * * *', 'America/Chicago', NULL, NULL),
             ('half a minute', '', '30 0 3 * * *', 'UTC', NULL, NULL),
             ('unclear', '', '0 9 1-31 * 1', 'UTC', NULL, NULL)",
    )
    .await;
    let rows: Value = sqlx::query_scalar(QUERY).fetch_one(&s.pool).await.unwrap();
    let person = Person::editor(&s);
    let file = person.write("pg-boss.json", &rows.to_string());
    let text = assert_taken(&s, &person, &["pg-boss", &file], 4, 2).await;
    for part in [
        "# its schedule was 0 9 */2 * 1;",
        "0 9 1-31/2 * 1",
        "0 5 9 * * 1-5",
        "queue: billing",
        "retryLimit: 3",
        "name: report/us",
        "timezone: America/Chicago",
        "# not taken over: half a minute",
        "# not taken over: unclear",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    s.end().await;
}

/// UTC in the place of a misspelt zone would move every time.
#[tokio::test]
async fn unknown_timezones_are_refused() {
    let person = Person::without_key();
    let text = "CRON_TZ=Europe/Pari\n0 3 * * * /opt/job.sh\n";
    let said = person.run_with(&["import", "crontab", "-"], text).await;
    assert!(said.code == 1 && said.err.contains("0 schedules taken over, 1 not;"), "{said:?}");
    assert!(said.out.contains("# NOT TAKEN OVER, the timezone Europe/Pari: "), "{said:?}");
    let said = person.run_with(&["import", "crontab", "-", "--timezone", "Europe/Pari"], text).await;
    assert!(said.code == 2 && said.out.is_empty() && said.err.contains("Europe/Pari"), "{said:?}");
}

/// A night's job of 20 minutes would be cut off after 300 s, and start again beside itself.
#[tokio::test]
async fn jobs_without_a_limit_are_noted() {
    let person = Person::without_key();
    for (limit, is_noted) in [("{activeDeadlineSeconds: 600}", false), ("{}", true)] {
        let text = format!(
            "kind: CronJob\nmetadata: {{name: a}}\nspec: {{schedule: \"0 1 * * *\", jobTemplate: {{spec: {limit}}}}}\n"
        );
        let said =
            person.run_with(&["import", "kubernetes", "-", "--target", "https://hooks.example/run"], &text).await;
        let is_said = said.out.starts_with("# timeout_secs is 300 unless a workflow has it");
        assert_eq!((said.code, is_said), (0, is_noted), "{said:?}");
    }
}

/// With a target, a team and an owner the file needs no further edit.
#[tokio::test]
async fn an_import_names_target_team_and_owner() {
    let person = Person::without_key();
    let words =
        ["import", "crontab", "-", "--target", "https://hooks.example/run", "--team", "demo", "--owner", "web01"];
    let said = person.run_with(&words, "0 3 * * * /opt/job.sh\n").await;
    let expected = "# timeout_secs is 300 unless a workflow has it: then its run ends, and its job may go on; see docs/receivers.md, Work that takes long
version: cronbox/v1
owner: web01
team: demo
workflows:
  # it ran the command: /opt/job.sh
  - name: job.sh
    description: /opt/job.sh
    cron_schedule: 0 3 * * *
    starting_inputs:
      command: /opt/job.sh
    action:
      method: POST
      type: http
      url: https://hooks.example/run
";
    assert_eq!((said.code, said.out.as_str()), (0, expected));
}
