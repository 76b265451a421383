//! One field of a cron: a list of values, ranges, steps, and special days.

use crate::{
    CronError,
    bits::Bits,
    days::{MonthDays, Weekdays},
    field::{Field, Kind},
};

/// The values of a field.
#[derive(Default)]
pub(crate) struct Values {
    /// Numbers and names, as the field's bits.
    pub(crate) plain: Bits,
    /// `L`, `LW`, `15W`.
    pub(crate) month_days: MonthDays,
    /// `5L`, `5#2`.
    pub(crate) weekdays: Weekdays,
    /// Begins with `*`, or is `?`.
    pub(crate) starred: bool,
    /// Is `?`.
    pub(crate) question: bool,
}

/// Parses a field's text, which begins at byte `start` of the input.
pub(crate) fn parse_list(field: &'static Field, (text, start): (&str, usize)) -> Result<Values, CronError> {
    let mut cursor = Cursor { field, rest: text, end: start + text.len() };
    if text == "?" && field.kind != Kind::Plain && field.kind != Kind::Year {
        return Ok(Values { plain: field.all_values(), starred: true, question: true, ..Values::default() });
    }
    let mut values = Values { starred: text.starts_with('*'), ..Values::default() };
    loop {
        cursor.item(&mut values)?;
        if cursor.rest.is_empty() {
            return Ok(values);
        }
        if !cursor.take(',') {
            return Err(cursor.unexpected());
        }
    }
}

/// The rest of a field that is not parsed yet.
struct Cursor<'a> {
    field: &'static Field,
    rest: &'a str,
    /// Where the field ends in the input.
    end: usize,
}

impl Cursor<'_> {
    fn item(&mut self, values: &mut Values) -> Result<(), CronError> {
        if self.take('*') {
            let step = self.step()?.unwrap_or(1);
            self.insert(values, self.field.min, self.field.last, step);
            return Ok(());
        }
        if self.field.kind == Kind::MonthDay && self.take('L') {
            if self.take('W') {
                values.month_days.last_weekday = true;
            } else {
                values.month_days.last = true;
            }
            return Ok(());
        }
        let position = self.position();
        let first = self.value()?;
        let kind = self.field.kind;
        match kind {
            Kind::MonthDay if self.take('W') => values.month_days.nearest |= 1 << first,
            Kind::Weekday if self.take('L') => values.weekdays.last |= 1 << self.field.bit_of(first),
            Kind::Weekday if self.take('#') => {
                values.weekdays.nth[self.week()?] |= 1 << self.field.bit_of(first);
            }
            _ => self.range(values, first, position)?,
        }
        Ok(())
    }

    /// After a first value: nothing, `-last`, `/step`, or both.
    fn range(&mut self, values: &mut Values, first: u32, position: usize) -> Result<(), CronError> {
        let last = if self.take('-') { Some(self.range_end(first, position)?) } else { None };
        let step = self.step()?;
        let last = match (last, step) {
            (Some(last), _) => last,
            (None, Some(_)) => self.field.last.max(first),
            (None, None) => first,
        };
        self.insert(values, first, last, step.unwrap_or(1));
        Ok(())
    }

    fn range_end(&mut self, first: u32, position: usize) -> Result<u32, CronError> {
        let before = self.rest;
        let last = self.value()?;
        if last >= first {
            return Ok(last);
        }
        let by_name = before.starts_with(|character: char| character.is_ascii_alphabetic());
        if by_name && self.field.kind == Kind::Weekday && last == self.field.min {
            // `FRI-SUN`: the Sunday at the end of the week.
            return Ok(self.field.min + 7);
        }
        let end = &before[..before.len() - self.rest.len()];
        Err(self.error(position, format!("the range ends at {end}, before it begins")))
    }

    fn insert(&self, values: &mut Values, first: u32, last: u32, step: u32) {
        for value in (first..=last).step_by(step as usize) {
            values.plain.insert(self.field.bit_of(value));
        }
    }

    /// `/n`, if it is next.
    fn step(&mut self) -> Result<Option<u32>, CronError> {
        if !self.take('/') {
            return Ok(None);
        }
        let position = self.position();
        let Some((step, written)) = self.number() else {
            return Err(self.unexpected());
        };
        // A step larger than the field would fire once per round, but "every 90 minutes" has another meaning.
        let limit = if self.field.kind == Kind::Year { self.field.max - self.field.min } else { self.field.max };
        match step {
            0 => Err(self.error(position, "the step must be at least 1".to_owned())),
            _ if step > limit => Err(self.error(position, format!("step {written} is above {limit}"))),
            _ => Ok(Some(step)),
        }
    }

    /// The week of `5#2`, from 0.
    fn week(&mut self) -> Result<usize, CronError> {
        let position = self.position();
        match self.number() {
            None => Err(self.unexpected()),
            Some((week @ 1..=5, _)) => Ok(week as usize - 1),
            Some((_, written)) => Err(self.error(position, format!("#{written} is not one of #1 to #5"))),
        }
    }

    /// A number or a value name of the field.
    fn value(&mut self) -> Result<u32, CronError> {
        let position = self.position();
        if let Some((value, written)) = self.number() {
            let Field { min, max, .. } = *self.field;
            return match value {
                _ if value > max => Err(self.error(position, format!("{written} is above {max}"))),
                _ if value < min => Err(self.error(position, format!("{written} is below {min}"))),
                _ => Ok(value),
            };
        }
        let letters = self.rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (word, _) = self.rest.split_at(letters);
        let known = |name: &&str| word.get(..3).is_some_and(|head| head.eq_ignore_ascii_case(name));
        let Some(index) = self.field.words.iter().position(known).filter(|_| is_one_word(word)) else {
            return Err(self.not_a_value(word, position));
        };
        self.rest = &self.rest[3..];
        Ok(self.field.min + index as u32)
    }

    fn not_a_value(&self, word: &str, position: usize) -> CronError {
        let reason = match (self.field.kind, word) {
            (Kind::Weekday, "L" | "l") => "L needs a weekday before it, such as 5L".to_owned(),
            (Kind::MonthDay, "W" | "w") => "W needs a day before it, such as 15W".to_owned(),
            (_, "") => return self.unexpected(),
            _ => match self.field.words {
                [first, .., last] => format!("{word} is not a name from {first} to {last}"),
                _ => format!("{word} is not a number"),
            },
        };
        self.error(position, reason)
    }

    /// Digits, as a number and as text.
    fn number(&mut self) -> Option<(u32, String)> {
        let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let (written, rest) = self.rest.split_at(digits);
        if written.is_empty() {
            return None;
        }
        self.rest = rest;
        Some((written.parse().unwrap_or(u32::MAX), written.to_owned()))
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.rest.starts_with(|next: char| next.eq_ignore_ascii_case(&wanted));
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn position(&self) -> usize {
        self.end - self.rest.len()
    }

    fn error(&self, position: usize, reason: String) -> CronError {
        CronError::of_field(self.field, position, reason)
    }

    fn unexpected(&self) -> CronError {
        let reason = match self.rest.chars().next() {
            None => "a value is missing at the end".to_owned(),
            Some(',') => "a value is missing before the comma".to_owned(),
            Some('?') if matches!(self.field.kind, Kind::MonthDay | Kind::Weekday) => {
                "? must be the only item".to_owned()
            }
            Some('?') => "? is permitted only in a day field".to_owned(),
            Some(next) => format!("unexpected {next:?}"),
        };
        self.error(self.position(), reason)
    }
}

/// Exactly three letters, or four with the `L` of `FRIL`.
fn is_one_word(word: &str) -> bool {
    word.len() == 3 || (word.len() == 4 && word.ends_with(['L', 'l']))
}
