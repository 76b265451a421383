//! Step 4 of 7: the texts for one field of an EventBridge expression.

use crate::{bits::Bits, field::Field};

/// Whether an expression fires at times that the cron does not name.
///
/// ```
/// use schedule::{Coverage, Cron, compile_cron};
/// let either_day = Cron::parse("0 9 13 * 5")?;
/// assert_eq!(compile_cron(&either_day, schedule::Timezone::UTC).coverage, Coverage::Superset);
/// assert_eq!(Coverage::Superset.as_str(), "superset");
/// # Ok::<(), schedule::CronError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Coverage {
    /// The same times.
    Exact,
    /// More times; the surplus is refused as `not_due`.
    Superset,
}

impl Coverage {
    /// `exact` or `superset`.
    ///
    /// ```
    /// assert_eq!(schedule::Coverage::Exact.as_str(), "exact");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Superset => "superset",
        }
    }
}

/// A text for a field.
pub(super) struct Form {
    pub(super) text: String,
    /// How many values it has; for the day fields: how many days.
    pub(super) count: u32,
    pub(super) coverage: Coverage,
}

/// The texts for a set of numbers: its exact form, and if that is a list, the range or step that contains it.
pub(super) fn list_forms(bits: Bits, field: &Field) -> Vec<Form> {
    let exact = Form { text: write_set(bits, field), count: bits.len(), coverage: Coverage::Exact };
    let wider = find_hull(bits);
    if wider == bits {
        return vec![exact];
    }
    vec![exact, Form { text: write_set(wider, field), count: wider.len(), coverage: Coverage::Superset }]
}

/// One value, range or step if the set is one, else a list.
pub(super) fn write_set(bits: Bits, field: &Field) -> String {
    stepped(bits, field).unwrap_or_else(|| {
        let list: Vec<_> = bits.iter().map(|bit| field.value_of(bit).to_string()).collect();
        list.join(",")
    })
}

/// The set as one value, range or step, if it is one.
fn stepped(bits: Bits, field: &Field) -> Option<String> {
    let first = bits.first_from(0)?;
    let Some(second) = bits.first_from(first + 1) else { return Some(field.value_of(first).to_string()) };
    let (last, step) = (bits.last_to(255)?, second - first);
    if (first..=last).step_by(step as usize).ne(bits.iter()) {
        return None;
    }
    let end = field.bit_of(field.last);
    let (from, to) = (field.value_of(first), field.value_of(last));
    Some(match bits.len() {
        _ if bits == field.all_values() => "*".to_owned(),
        // Two values are easier to read as a list, except if they halve the field.
        2 if first == field.bit_of(field.min) && 2 * step == end - first + 1 => format!("{from}/{step}"),
        2 => format!("{from},{to}"),
        _ if step == 1 => format!("{from}-{to}"),
        _ if last + step > end => format!("{from}/{step}"),
        _ => format!("{from}-{to}/{step}"),
    })
}

/// The smallest range or step around a set.
pub(super) fn find_hull(bits: Bits) -> Bits {
    let (first, last) = (bits.first_from(0).unwrap_or(0), bits.last_to(255).unwrap_or(0));
    let step = bits.iter().fold(0, |step, bit| greatest_common_divisor(step, bit - first));
    (first..=last).step_by(step.max(1) as usize).collect()
}

fn greatest_common_divisor(left: u32, right: u32) -> u32 {
    if right == 0 { left } else { greatest_common_divisor(right, left % right) }
}
