//! Writes to standard output. If the reader has exited, as `head` does, this is no failure.
//!
//! What is printed has text of servers, of clients and of queues: it must not control the terminal, nor begin a line.

use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;

/// One line of JSON.
pub(crate) fn print_json(answer: &(impl Serialize + ?Sized)) -> anyhow::Result<ExitCode> {
    print_json_lines([answer])
}

/// One line of JSON for each object.
pub(crate) fn print_json_lines(objects: impl IntoIterator<Item = impl Serialize>) -> anyhow::Result<ExitCode> {
    let mut lines = String::new();
    for object in objects {
        lines.push_str(&json_text(&object)?);
        lines.push('\n');
    }
    print_text(&lines)
}

/// The JSON of an object, in one line. Escapes keep the characters for the program that reads them.
pub(crate) fn json_text(object: &(impl Serialize + ?Sized)) -> anyhow::Result<String> {
    Ok(escape_json(&serde_json::to_string(object)?))
}

/// Writes lines of JSON of a server, with the same escapes; returns whether the reader of standard output has closed it.
pub(crate) fn pass_json_lines(lines: &str) -> anyhow::Result<bool> {
    let mut output = io::stdout().lock();
    is_pipe_closed(output.write_all(escape_json(lines).as_bytes()).and_then(|()| output.flush()))
}

/// Writes text of several lines, without characters that control the terminal.
pub(crate) fn print_text(text: &str) -> anyhow::Result<ExitCode> {
    is_pipe_closed(io::stdout().lock().write_all(printable_lines(text).as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a file that another command reads: exactly as it is, unless standard output is a terminal, which it could control.
pub(crate) fn print_file(text: &str) -> anyhow::Result<ExitCode> {
    if io::stdout().is_terminal() {
        return print_text(text);
    }
    is_pipe_closed(io::stdout().lock().write_all(text.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

/// What became of a text that a command prints before it changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Printed {
    /// The operating system has it completely.
    Complete,
    /// The reader of standard output has closed it.
    Closed,
}

/// Writes text as [`print_text`] does, and flushes it, because text without a line break would wait in the buffer.
pub(crate) fn print_text_now(text: &str) -> anyhow::Result<Printed> {
    let mut output = io::stdout().lock();
    let written = output.write_all(printable_lines(text).as_bytes()).and_then(|()| output.flush());
    Ok(if is_pipe_closed(written)? { Printed::Closed } else { Printed::Complete })
}

/// Writes why something failed to standard error, in one line.
pub(crate) fn print_error(sentence: &str) {
    eprintln!("cronbox: {}", one_line(sentence));
}

/// Text of a server as a part of a line: a line break in it would begin a line that looks like one of ours.
pub(crate) fn one_line(text: &str) -> String {
    printable_lines(text).replace('\n', " ")
}

/// Text of a server in several lines, with U+FFFD in place of characters that control the terminal.
pub(crate) fn printable_lines(text: &str) -> String {
    text.replace(|one| is_unprintable(one) && one != '\n', "\u{fffd}")
}

/// JSON of the same value, with escapes in place of characters that control the terminal. JSON has them only in strings.
fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for one in json.chars() {
        if is_unprintable(one) && one != '\n' {
            escaped.push_str(&format!("\\u{:04x}", u32::from(one)));
        } else {
            escaped.push(one);
        }
    }
    escaped
}

/// Control characters, the separators of lines and paragraphs, and what changes the direction of text.
fn is_unprintable(one: char) -> bool {
    one.is_control() || matches!(one, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether the reader of standard output has closed it.
pub(crate) fn is_pipe_closed(written: io::Result<()>) -> anyhow::Result<bool> {
    match written {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
        Err(error) => Err(error).context("could not write to standard output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_servers_stays_in_its_line() {
        assert_eq!(
            one_line("a\u{1b}[31m\r\nb\u{2028}c\u{202e}d \u{e9}"),
            "a\u{fffd}[31m\u{fffd} b\u{fffd}c\u{fffd}d \u{e9}"
        );
        assert_eq!(printable_lines("a\n\tb"), "a\n\u{fffd}b");
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!({"name": "a\u{9b}31m\u{7f}\u{2028}\u{202e}\u{1b}b\n \u{e9}"});
        let escaped = escape_json(&format!("{value}\n"));
        assert!(!escaped.trim_end().chars().any(is_unprintable), "{escaped}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
    }
}
