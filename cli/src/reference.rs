//! `cronbox reference`: the commands as Markdown, for docs/cli.md. A test compares it with the page.

use std::fmt::Write as _;
use std::process::ExitCode;

use crate::print::print_text;

/// The headings of options that the page explains once.
const SHARED: [&str; 2] = ["Connection", "Output"];

/// Prints each command with its arguments and options.
pub(crate) fn print_reference(mut command: clap::Command) -> anyhow::Result<ExitCode> {
    command.build();
    let mut text = String::new();
    for noun in command.get_subcommands().filter(|noun| !noun.is_hide_set() && noun.get_name() != "help") {
        write_command(&mut text, noun, &format!("cronbox {}", noun.get_name()));
    }
    print_text(&text)
}

fn write_command(text: &mut String, command: &clap::Command, name: &str) {
    let verbs: Vec<_> = command.get_subcommands().filter(|verb| verb.get_name() != "help").collect();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    // Writing to a String cannot fail.
    if !verbs.is_empty() {
        let _ = writeln!(text, "### `{name}`\n\n{about}.\n");
        for verb in verbs {
            write_command(text, verb, &format!("{name} {}", verb.get_name()));
        }
        return;
    }
    let arguments: Vec<String> = command.get_positionals().map(in_brackets).collect();
    let usage = [vec![name.to_owned()], arguments].concat().join(" ");
    let level = if name.split(' ').count() == 2 { "###" } else { "####" };
    let _ = writeln!(text, "{level} `{usage}`\n\n{about}.\n");
    let options = command.get_arguments().filter(|option| {
        let is_shared = option.get_help_heading().is_some_and(|heading| SHARED.contains(&heading));
        !is_shared && !option.is_hide_set() && !["help", "version"].contains(&option.get_id().as_str())
    });
    let rows: Vec<String> = options.map(row).collect();
    if !rows.is_empty() {
        let _ = writeln!(text, "| option | |\n|---|---|\n{}", rows.join("\n"));
        text.push('\n');
    }
}

fn value_of(option: &clap::Arg) -> String {
    let takes_value = option.get_action().takes_values();
    let names = option.get_value_names().filter(|_| takes_value).unwrap_or_default();
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn in_brackets(argument: &clap::Arg) -> String {
    let several = if argument.get_num_args().is_some_and(|count| count.max_values() > 1) { ".." } else { "" };
    let name = format!("{}{several}", value_of(argument));
    if argument.is_required_set() { name } else { format!("[{name}]") }
}

fn row(option: &clap::Arg) -> String {
    let mut name = match (option.get_short(), option.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (None, Some(long)) => format!("--{long}"),
        (Some(short), None) => format!("-{short}"),
        (None, None) => String::new(),
    };
    let value = value_of(option);
    if !value.is_empty() {
        name = format!("{name} {value}").trim().to_owned();
    }
    let help = option.get_help().map(ToString::to_string).unwrap_or_default().replace('|', "\\|").replace('\n', " ");
    let values: Vec<String> =
        option.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    let values = if values.is_empty() || !option.get_action().takes_values() {
        String::new()
    } else {
        format!(": {}", values.join(", "))
    };
    let variable = option.get_env().map(|name| format!(" (`{}`)", name.to_string_lossy())).unwrap_or_default();
    let defaults: Vec<_> =
        option.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    let default = if defaults.is_empty() || !option.get_action().takes_values() {
        String::new()
    } else {
        format!("; `{}` by default", defaults.join(" "))
    };
    format!("| `{name}` | {}{values}{default}{variable} |", help.trim_end_matches('.'))
}
