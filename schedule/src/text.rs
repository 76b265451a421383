//! Formats a [`Cron`] as its canonical text, which parses to the same cron.

use std::fmt;

use crate::{
    Cron,
    bits::Bits,
    days::{Days, Rule},
    field::{Field, HOUR, Kind, MINUTE, MONTH, MONTH_DAY, WEEKDAY, YEAR},
};

/// From this many values on, a list with equal distances is written as a step.
const FEWEST_STEPS: u32 = 4;
/// For a list longer than this, overlapping steps are searched.
const LONG: usize = 60;
/// The largest step of that search, which bounds its effort.
const MAX_STEP: u32 = 20;

/// How a field may begin: a star at its start changes how the two day fields combine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    Any,
    Star,
    NoStar,
}

/// The canonical text, which parses to the same cron.
impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(self, f)
    }
}

/// Writes five fields, or seven if the years are restricted.
fn write(cron: &Cron, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (month_days, weekdays) = day_fields(&cron.days);
    let minutes = set(cron.minutes.into(), &MINUTE, Begin::Any);
    let hours = set(cron.hours.into(), &HOUR, Begin::Any);
    let months = set(cron.months.into(), &MONTH, Begin::Any);
    if cron.has_open_years() {
        write!(f, "{minutes} {hours} {month_days} {months} {weekdays}")
    } else {
        let years = set(cron.years, &YEAR, Begin::Any);
        write!(f, "0 {minutes} {hours} {month_days} {months} {weekdays} {years}")
    }
}

fn day_fields(days: &Days) -> (String, String) {
    let (dates, weekdays) = (Bits::from(days.month_days.plain), Bits::from(u64::from(days.weekdays.plain)));
    let (begin_date, begin_weekday) = match days.rule {
        Rule::Either => (Begin::NoStar, Begin::NoStar),
        Rule::Both if days.month_days.are_open() || days.weekdays.are_open() => (Begin::Any, Begin::Any),
        // One star is enough; it is in the field where it leaves the shorter list.
        Rule::Both if left_by_star(dates, &MONTH_DAY) <= left_by_star(weekdays, &WEEKDAY) => {
            (Begin::Star, Begin::NoStar)
        }
        Rule::Both => (Begin::NoStar, Begin::Star),
    };
    let mut month_day_items = items(dates, &MONTH_DAY, begin_date);
    month_day_items.extend(Bits::from(days.month_days.nearest).iter().map(|day| format!("{day}W")));
    if days.month_days.last {
        month_day_items.push("L".to_owned());
    }
    if days.month_days.last_weekday {
        month_day_items.push("LW".to_owned());
    }
    let mut weekday_items = items(weekdays, &WEEKDAY, begin_weekday);
    for (week, &nth) in (1..).zip(&days.weekdays.nth) {
        weekday_items.extend(Bits::from(u64::from(nth)).iter().map(|weekday| format!("{weekday}#{week}")));
    }
    weekday_items.extend(Bits::from(u64::from(days.weekdays.last)).iter().map(|weekday| format!("{weekday}L")));
    (month_day_items.join(","), weekday_items.join(","))
}

fn set(bits: Bits, field: &Field, begin: Begin) -> String {
    items(bits, field, begin).join(",")
}

fn items(bits: Bits, field: &Field, begin: Begin) -> Vec<String> {
    if bits.is_empty() {
        return Vec::new();
    }
    if begin == Begin::Star {
        return starred(bits, field);
    }
    if begin == Begin::Any && bits == field.all_values() {
        return vec!["*".to_owned()];
    }
    if let Some(one) = progression(bits, field, begin) {
        return vec![one];
    }
    let runs = runs(bits, field);
    if runs.iter().map(String::len).sum::<usize>() <= LONG {
        return runs;
    }
    // If both texts have the same length, the ranges win, because they come first.
    [runs, cover(bits, field)].into_iter().min_by_key(|items| items.join(",").len()).unwrap_or_default()
}

/// `*/n` and the values that it does not cover.
fn starred(bits: Bits, field: &Field) -> Vec<String> {
    let Some(step) = star_step(bits, field) else { return items(bits, field, Begin::NoStar) };
    let mut rest = bits;
    star(field, step).for_each(|bit| rest.remove(bit));
    let mut written = vec![format!("*/{step}")];
    written.extend(items(rest, field, Begin::NoStar));
    written
}

/// The values of `*/n`.
fn star(field: &Field, step: u32) -> impl Iterator<Item = u32> {
    (field.bit_of(field.min)..=field.bit_of(field.last)).step_by(step as usize)
}

/// The smallest step of a `*/n` within the set.
fn star_step(bits: Bits, field: &Field) -> Option<u32> {
    (2..=field.max).find(|step| star(field, *step).all(|bit| bits.contains(bit)))
}

/// How many values `*/n` leaves to be listed; `usize::MAX` if no `*/n` is possible.
fn left_by_star(bits: Bits, field: &Field) -> usize {
    star_step(bits, field).map_or(usize::MAX, |step| {
        let starred: Bits = star(field, step).collect();
        bits.iter().filter(|bit| !starred.contains(*bit)).count()
    })
}

/// The complete set as one step, if it is one: `*/15`, `9-17/2`.
fn progression(bits: Bits, field: &Field, begin: Begin) -> Option<String> {
    let first = bits.first_from(0)?;
    let second = bits.first_from(first + 1)?;
    let (end, step) = (bits.last_to(255)?, second - first);
    // Weekdays are never written as a step: there are few, and a step hides that it starts again each Sunday.
    if step == 1 || field.kind == Kind::Weekday || (first..=end).step_by(step as usize).ne(bits.iter()) {
        return None;
    }
    let count = bits.len();
    let reaches_end = end + step > field.bit_of(field.last);
    // Two values become a step only if they divide the field evenly: 0,30 but not 0,59.
    let fills_field = count > 2 || (field.last - field.min + 1) == 2 * step;
    if begin == Begin::Any && first == field.bit_of(field.min) && reaches_end && fills_field {
        return Some(format!("*/{step}"));
    }
    let end = if reaches_end { field.bit_of(field.last) } else { end };
    (count >= FEWEST_STEPS).then(|| format!("{}-{}/{step}", field.value_of(first), field.value_of(end)))
}

/// Ranges of at least three neighbours.
fn runs(bits: Bits, field: &Field) -> Vec<String> {
    let mut written = Vec::new();
    let mut next = bits.first_from(0);
    while let Some(first) = next {
        let last = (first..).take_while(|bit| bits.contains(*bit)).last().unwrap_or(first);
        match last - first {
            0 => written.push(field.value_of(first).to_string()),
            1 => written.extend([field.value_of(first).to_string(), field.value_of(last).to_string()]),
            _ => written.push(format!("{}-{}", field.value_of(first), field.value_of(last))),
        }
        next = bits.first_from(last + 1);
    }
    written
}

/// Overlapping steps, the longest first, for a set like that of `*/2,*/3`.
fn cover(bits: Bits, field: &Field) -> Vec<String> {
    let mut missing = bits;
    let mut written = Vec::new();
    while let Some((first, last, step)) = longest(bits, missing) {
        for bit in (first..=last).step_by(step as usize) {
            missing.remove(bit);
        }
        written.push(match step {
            _ if first == last => field.value_of(first).to_string(),
            1 => format!("{}-{}", field.value_of(first), field.value_of(last)),
            _ => format!("{}-{}/{step}", field.value_of(first), field.value_of(last)),
        });
    }
    written
}

/// The step within `bits` that covers most of `missing`.
fn longest(bits: Bits, missing: Bits) -> Option<(u32, u32, u32)> {
    let mut best = None;
    let mut best_count = 0;
    for step in 1..=MAX_STEP {
        let begins = |first: &u32| first.checked_sub(step).is_none_or(|before| !bits.contains(before));
        for first in bits.iter().filter(begins) {
            let along = || (first..).step_by(step as usize).take_while(|bit| bits.contains(*bit));
            let count = along().filter(|bit| missing.contains(*bit)).count();
            if count > best_count {
                best_count = count;
                best = along().last().map(|last| (first, last, step));
            }
        }
    }
    best
}
