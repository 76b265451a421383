//! The commands of docs/runbook.md, by paragraph.

use std::path::Path;

/// The runbook.
pub(crate) fn runbook() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/runbook.md")).unwrap()
}

/// The commands of the paragraph with this anchor, as they are in its blocks of `sh` and `sql`. A command may have several lines.
pub(crate) fn commands_of(runbook: &str, anchor: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let (mut language, mut unfinished) = (None, String::new());
    for line in paragraph(runbook, anchor) {
        match (line.trim().strip_prefix("```"), language) {
            (Some(name), None) => language = Some(name),
            (Some(_), Some(_)) => {
                assert_eq!(unfinished, "", "#{anchor}: a command has no end");
                language = None;
            }
            (None, Some("sh")) => {
                unfinished.push_str(line.trim());
                match unfinished.strip_suffix('\\') {
                    Some(begun) => unfinished = begun.to_owned(),
                    None => commands.push(std::mem::take(&mut unfinished)),
                }
            }
            (None, Some("sql")) => {
                unfinished.push_str(line.trim());
                unfinished.push(' ');
                if line.trim_end().ends_with(';') {
                    let statement = std::mem::take(&mut unfinished);
                    commands.push(format!("psql \"$DATABASE_URL\" -v ON_ERROR_STOP=1 -c \"{}\"", statement.trim()));
                }
            }
            _ => {}
        }
    }
    commands.retain(|command| !command.is_empty() && !command.starts_with('#'));
    commands
}

/// The lines from an anchor to the next paragraph. An anchor of a list is that of its item.
fn paragraph<'a>(runbook: &'a str, anchor: &str) -> Vec<&'a str> {
    let mark = format!("<a id=\"{anchor}\"></a>");
    let mut lines = runbook.lines().skip_while(|line| !line.contains(&mark));
    let first = lines.next().unwrap_or_else(|| panic!("the runbook has no #{anchor}"));
    let is_item = first.trim_start().starts_with("- ");
    let mut rest: Vec<&str> = lines.collect();
    if !is_item && !first.starts_with('#') && !first.starts_with("<a id=\"watchdog\"") {
        // Several anchors may share a heading, which is their first line without an anchor.
        let heading = rest.iter().position(|line| line.starts_with('#')).unwrap_or(rest.len());
        rest.drain(..=heading);
    }
    let mut is_fenced = false;
    let is_in = |line: &&str| {
        is_fenced ^= line.trim().starts_with("```");
        let is_next_item = line.starts_with("- <a id=") || is_item && line.starts_with("- ");
        is_fenced || !(line.starts_with('#') || line.starts_with("<a id=") || is_next_item)
    };
    std::iter::once(first).chain(rest.into_iter().take_while(is_in)).collect()
}

#[test]
fn commands_are_those_of_their_paragraph() {
    let text = "<a id=\"a\"></a><a id=\"b\"></a>\n<a id=\"c\"></a>\n### A\nwords\n\n```sh\ncronbox one \\\n  --more\n\n# a comment\ncurl two\n```\n\n\
                ```sql\nSELECT 1\n  FROM t;\nSELECT 2;\n```\n```\nnot this\n```\n### D\n```sh\nthree\n```\n\
                - <a id=\"e\"></a>**E**: words\n  ```sh\n  four\n  ```\n- <a id=\"f\"></a>F\n```sh\nfive\n```\n";
    let psql = |statement: &str| format!("psql \"$DATABASE_URL\" -v ON_ERROR_STOP=1 -c \"{statement}\"");
    let of_a = ["cronbox one --more".to_owned(), "curl two".to_owned(), psql("SELECT 1 FROM t;"), psql("SELECT 2;")];
    for anchor in ["a", "b", "c"] {
        assert_eq!(commands_of(text, anchor), of_a, "{anchor}");
    }
    assert_eq!((commands_of(text, "e"), commands_of(text, "f")), (vec!["four".to_owned()], vec!["five".to_owned()]));
}
