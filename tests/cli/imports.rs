//! Other schedulers' files become files that the app takes.

use tests::Story;

use crate::{Person, data};

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

/// With a target, a team and an owner the file needs no further edit.
#[tokio::test]
async fn an_import_names_target_team_and_owner() {
    let person = Person::without_key();
    let words =
        ["import", "crontab", "-", "--target", "https://hooks.example/run", "--team", "demo", "--owner", "web01"];
    let said = person.run_with(&words, "0 3 * * * /opt/job.sh\n").await;
    let expected = "version: cronbox/v1
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
