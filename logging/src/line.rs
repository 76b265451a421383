//! Writes events as lines: characters that would end a line, control a terminal or hide text are escaped.

use std::borrow::Cow;
use std::io::{self, Write};

/// What happens to the escape sequences of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sequences {
    /// The colours of the formatter are kept. It does not escape all text of fields, so no other sequence is kept.
    Kept,
    /// There are no colours, so every one is of a field.
    Escaped,
}

/// A writer of one event: the formatter writes it with one call.
pub(crate) struct LineWriter<W> {
    out: W,
    sequences: Sequences,
}

impl<W> LineWriter<W> {
    pub(crate) fn new(out: W, sequences: Sequences) -> Self {
        Self { out, sequences }
    }
}

impl<W: Write> Write for LineWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let event = text.strip_suffix('\n').unwrap_or(&text);
        // One call in both cases, so that the lines of two threads do not mix.
        match escape_event(event, self.sequences) {
            Cow::Borrowed(_) => self.out.write_all(bytes)?,
            Cow::Owned(line) => self.out.write_all((line + "\n").as_bytes())?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// What the formatter writes: the end of a style, bold, dim, italic, and the colours of levels. Text of a client may have
/// these, too, but none of those that move the cursor, hide text or set the title.
const STYLES: [&str; 9] = [
    "\u{1b}[0m",
    "\u{1b}[1m",
    "\u{1b}[2m",
    "\u{1b}[3m",
    "\u{1b}[31m",
    "\u{1b}[32m",
    "\u{1b}[33m",
    "\u{1b}[34m",
    "\u{1b}[35m",
];

/// Escapes an event. In JSON the escapes mean the characters themselves: they occur only within its strings.
fn escape_event(event: &str, sequences: Sequences) -> Cow<'_, str> {
    if !event.contains(is_unprintable) {
        return Cow::Borrowed(event);
    }
    let is_style = |rest: &str| sequences == Sequences::Kept && STYLES.iter().any(|style| rest.starts_with(style));
    let mut line = String::with_capacity(event.len() + 16);
    for (at, one) in event.char_indices() {
        match one {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            '\u{1b}' if is_style(&event[at..]) => line.push(one),
            one if is_unprintable(one) => line.push_str(&format!("\\u{:04x}", u32::from(one))),
            one => line.push(one),
        }
    }
    Cow::Owned(line)
}

/// Control characters, the separators of lines and paragraphs, and what changes the direction of text.
fn is_unprintable(one: char) -> bool {
    one.is_control()
        || matches!(one, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_kept_on_a_terminal() {
        assert_eq!(escape_event("\u{1b}[32mINFO\u{1b}[0m a\nb", Sequences::Kept), "\u{1b}[32mINFO\u{1b}[0m a\\nb");
        assert_eq!(escape_event("\u{1b}[2J\u{1b}[8m\u{1b}[", Sequences::Kept), "\\u001b[2J\\u001b[8m\\u001b[");
        assert_eq!(escape_event("\u{1b}[0m", Sequences::Escaped), "\\u001b[0m");
    }
}
