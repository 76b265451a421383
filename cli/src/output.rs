//! How answers are printed: a table for people, JSON or YAML for programs, or only names.
//!
//! A table has a row for each object. On a terminal it is as wide as the terminal, and columns that do not fit are left out, from the
//! last one on; `-o wide` has all of them.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use chrono::{DateTime, Utc};
use clap::{Args, ValueEnum};
use comfy_table::{Cell as TableCell, Color, ContentArrangement, Table, presets};
use schedule::Clock;
use serde::Serialize;

use crate::config::variable;
use crate::print::{Printed, json_text, one_line, print_json, print_json_lines, print_text, print_text_now};
use crate::times::Times;

/// Between two columns.
const GAP: usize = 2;

/// How the answer is printed.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Output {
    /// The form of the answer.
    #[arg(help_heading = "Output", short = 'o', long = "output", value_name = "FORM", default_value = "table")]
    pub(crate) form: Form,
    /// How a table shows times; in UTC unless it is printed on a terminal.
    #[arg(help_heading = "Output", long, value_name = "HOW")]
    times: Option<Times>,
}

/// How the answer of a command is printed that had `--json` before it had `-o`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct OutputOrJson {
    #[command(flatten)]
    output: Output,
    /// The same as before `-o`, for scripts: one JSON object per line, and a list has a line for each item.
    #[arg(help_heading = "Output", long, hide = true, conflicts_with = "form")]
    json: bool,
}

impl OutputOrJson {
    /// The output that one of both options names.
    pub(crate) fn resolve(self) -> Output {
        if self.json { Output { form: Form::Lines, ..self.output } } else { self.output }
    }
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// A table, as wide as the terminal
    Table,
    /// A table with all columns
    Wide,
    /// One document of JSON
    Json,
    /// One document of YAML
    Yaml,
    /// The id of each object, a line each: what other commands take
    Name,
    /// One line of JSON for each object: `--json` of [`OutputOrJson`]
    #[value(skip)]
    Lines,
}

/// How a cell looks on a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Look {
    #[default]
    Plain,
    Good,
    Bad,
    Waiting,
}

/// A cell of a table.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    look: Look,
}

/// What can be a row.
pub(crate) trait Row: Serialize {
    /// The titles of the columns, the most important one first; those from `WIDE_FROM` on only with `-o wide`.
    const COLUMNS: &'static [&'static str];
    /// The first column that only a wide table has.
    const WIDE_FROM: usize;

    /// The id by which other commands name it.
    fn handle(&self) -> String;
    /// Its cells, one for each column.
    fn cells(&self, view: View) -> Vec<Cell>;
}

/// How cells show times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    times: Times,
    pub(crate) now: DateTime<Utc>,
}

impl View {
    /// A time, or nothing.
    pub(crate) fn time(self, time: Option<DateTime<Utc>>) -> Cell {
        Cell::from(time.map(|time| self.times.show(time, self.now)).unwrap_or_default())
    }
}

impl<T: ToString> From<T> for Cell {
    fn from(value: T) -> Self {
        Self { text: one_line(&value.to_string()), look: Look::Plain }
    }
}

impl Cell {
    /// A cell for a value that may be absent.
    pub(crate) fn optional(value: Option<impl ToString>) -> Self {
        value.map_or_else(|| Self::from(""), Self::from)
    }

    /// What it shows.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// A cell with a look.
    pub(crate) fn with_look(text: impl ToString, look: Look) -> Self {
        Self { look, ..Self::from(text) }
    }
}

/// The word of the API for a value.
pub(crate) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(serde_json::Value::Null) | Err(_) => String::new(),
        Ok(other) => other.to_string(),
    }
}

/// A cell with a state, whose colour says whether it is good.
pub(crate) fn state(value: &impl Serialize) -> Cell {
    let word = word(value);
    let look = match word.as_str() {
        "active" | "succeeded" | "sent" | "synced" | "finished" | "fired" | "done" => Look::Good,
        "failed" | "timed_out" | "abandoned" | "missed" | "refused" | "drifted" | "lost" => Look::Bad,
        "running" | "queued" | "accepted" | "pending" | "paused" | "in_force" | "skipped_paused" => Look::Waiting,
        _ => Look::Plain,
    };
    Cell::with_look(word, look)
}

impl Output {
    fn view(self) -> View {
        let default = if std::io::stdout().is_terminal() { Times::Relative } else { Times::Utc };
        View { times: self.times.unwrap_or(default), now: Clock::System.now() }
    }

    /// Whether programs read it.
    pub(crate) fn is_for_programs(self) -> bool {
        !matches!(self.form, Form::Table | Form::Wide)
    }

    /// Prints objects.
    ///
    /// # Errors
    /// Fails if standard output cannot be written.
    pub(crate) fn print_rows<R: Row>(self, rows: &[R]) -> anyhow::Result<ExitCode> {
        self.print_rows_with(rows, |_| if rows.is_empty() { "nothing\n".to_owned() } else { self.table(rows) })
    }

    /// Prints objects, for people by this text instead of a table.
    ///
    /// # Errors
    /// Fails if standard output cannot be written.
    pub(crate) fn print_rows_with<R: Row>(
        self,
        rows: &[R],
        text: impl FnOnce(View) -> String,
    ) -> anyhow::Result<ExitCode> {
        match self.form {
            Form::Json => print_json(rows),
            Form::Lines => print_json_lines(rows),
            Form::Yaml => print_text(&to_yaml(&rows)?),
            Form::Name => print_text(&rows.iter().map(|row| row.handle() + "\n").collect::<String>()),
            Form::Table | Form::Wide => print_text(&text(self.view())),
        }
    }

    /// Prints an answer that has rows and more: programs get the complete answer, and people a table between two texts.
    ///
    /// # Errors
    /// Fails if standard output cannot be written.
    pub(crate) fn print_report<T: Serialize, R: Row>(
        self,
        answer: &T,
        before: &str,
        rows: &[R],
        after: &str,
    ) -> anyhow::Result<ExitCode> {
        match self.form {
            Form::Name => self.print_rows(rows),
            _ if rows.is_empty() => self.print_object(answer, "", |_| format!("{before}{after}")),
            _ => self.print_object(answer, "", |_| {
                let parts = [before.to_owned(), self.table(rows), after.to_owned()];
                parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
            }),
        }
    }

    /// Prints one object, in a table with a line for each field.
    ///
    /// # Errors
    /// Fails if standard output cannot be written.
    pub(crate) fn print_one<T: Serialize>(
        self,
        object: &T,
        handle: &str,
        lines: impl FnOnce(View) -> Vec<(&'static str, Cell)>,
    ) -> anyhow::Result<ExitCode> {
        self.print_object(object, handle, |view| field_lines(lines(view)))
    }

    /// Prints one object, for people by this text.
    ///
    /// # Errors
    /// Fails if standard output cannot be written.
    pub(crate) fn print_object<T: Serialize>(
        self,
        object: &T,
        handle: &str,
        text: impl FnOnce(View) -> String,
    ) -> anyhow::Result<ExitCode> {
        match self.form {
            Form::Json | Form::Lines => print_json(object),
            Form::Yaml => print_text(&to_yaml(object)?),
            Form::Name if handle.is_empty() => Ok(ExitCode::SUCCESS),
            Form::Name => print_text(&format!("{handle}\n")),
            Form::Table | Form::Wide => print_text(&text(self.view())),
        }
    }

    /// A table of rows, as wide as the terminal unless it is to be complete.
    pub(crate) fn table<R: Row>(self, rows: &[R]) -> String {
        let view = self.view();
        let cells: Vec<Vec<Cell>> = rows.iter().map(|row| row.cells(view)).collect();
        match self.form {
            Form::Wide => draw(R::COLUMNS, &cells, None),
            _ => draw(&R::COLUMNS[..R::WIDE_FROM.min(R::COLUMNS.len())], &cells, terminal_width()),
        }
    }
}

/// Objects that are printed as they come, so that an interrupted command has printed what it did.
///
/// People get a line for each, and programs one document in the end: it is complete only after [`Stream::end`].
pub(crate) struct Stream {
    output: Output,
    count: usize,
}

impl Stream {
    /// A stream without an object yet.
    pub(crate) fn new(output: Output) -> Self {
        Self { output, count: 0 }
    }

    /// Prints the next object, and returns when standard output has it.
    ///
    /// # Errors
    /// Fails if standard output cannot be written for another reason than that its reader has closed it.
    pub(crate) fn print_next<R: Row>(&mut self, row: &R, line: impl FnOnce() -> String) -> anyhow::Result<Printed> {
        self.count += 1;
        let text = match self.output.form {
            Form::Json if self.count == 1 => format!("[{}", json_text(row)?),
            Form::Json => format!(",\n{}", json_text(row)?),
            Form::Lines => json_text(row)? + "\n",
            Form::Yaml => to_yaml(&[row])?,
            Form::Name => row.handle() + "\n",
            Form::Table | Form::Wide => line(),
        };
        print_text_now(&text)
    }

    /// Ends the document.
    ///
    /// # Errors
    /// Fails if standard output cannot be written.
    pub(crate) fn end(self) -> anyhow::Result<()> {
        match (self.output.form, self.count) {
            (Form::Json, 0) => print_text("[]\n").map(drop),
            (Form::Json, _) => print_text("]\n").map(drop),
            (Form::Yaml, 0) => print_text("[]\n").map(drop),
            _ => Ok(()),
        }
    }
}

/// The columns of the terminal, if standard output is one.
fn terminal_width() -> Option<usize> {
    std::io::stdout().is_terminal().then(|| Table::new().width().map(usize::from)).flatten()
}

/// Whether colours are wanted: on a terminal, unless `NO_COLOR` is set.
pub(crate) fn has_colour() -> bool {
    std::io::stdout().is_terminal() && variable("NO_COLOR").is_none()
}

fn draw(titles: &[&str], rows: &[Vec<Cell>], width: Option<usize>) -> String {
    let count = width.map_or(titles.len(), |width| fitting(titles, rows, width));
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(titles[..count].iter().copied());
    let is_coloured = has_colour();
    for row in rows {
        table.add_row(row[..count].iter().map(|cell| {
            let shown = TableCell::new(&cell.text);
            match cell.look {
                Look::Good if is_coloured => shown.fg(Color::Green),
                Look::Bad if is_coloured => shown.fg(Color::Red),
                Look::Waiting if is_coloured => shown.fg(Color::Yellow),
                _ => shown,
            }
        }));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// How many columns, from the first one on, fit into the width; at least two.
fn fitting(titles: &[&str], rows: &[Vec<Cell>], width: usize) -> usize {
    let wide = |at: usize| {
        let cells = rows.iter().map(|row| row[at].text.chars().count());
        cells.chain([titles[at].chars().count()]).max().unwrap_or_default() + GAP
    };
    let mut used = 0;
    let fits = (0..titles.len()).take_while(|at| {
        used += wide(*at);
        used <= width + GAP
    });
    fits.count().max(2).min(titles.len())
}

fn field_lines(lines: Vec<(&'static str, Cell)>) -> String {
    let shown: Vec<_> = lines.into_iter().filter(|(_, cell)| !cell.text.is_empty()).collect();
    let longest = shown.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    shown.iter().map(|(name, cell)| format!("{name:<longest$}  {}\n", cell.text)).collect()
}

/// Members in the order in which people read them; `serde_json` sorts them by name.
pub(crate) struct Ordered(pub(crate) Vec<(String, serde_json::Value)>);

impl Serialize for Ordered {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// The YAML of an object.
///
/// # Errors
/// Fails if it cannot be written as YAML.
pub(crate) fn to_yaml<T: Serialize + ?Sized>(object: &T) -> anyhow::Result<String> {
    // By JSON, because its numbers and raw texts are plain values there.
    let text = serde_saphyr::to_string(&serde_json::to_value(object)?)?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<Cell>> {
        vec![vec!["1".into(), "payroll".into(), "active".into()], vec!["20".into(), "a\nb".into(), "paused".into()]]
    }

    #[test]
    fn columns_line_up() {
        let text = draw(&["ID", "NAME", "STATE"], &rows(), None);
        assert_eq!(text, "ID  NAME     STATE\n1   payroll  active\n20  a b      paused\n");
    }

    #[test]
    fn columns_that_do_not_fit_are_left_out() {
        for (width, last) in [(100, "STATE"), (21, "STATE"), (18, "NAME"), (3, "NAME")] {
            let text = draw(&["ID", "NAME", "STATE"], &rows(), Some(width));
            assert!(text.lines().next().unwrap().ends_with(last), "{width}: {text}");
        }
    }
}
