//! By how much a statement reads more at a large table than at a small one.

use super::statements::StatementFigures;

/// Fewer buffers than these count as these: two index pages of each day that is kept. A list that finds little searches the
/// partitions of all days; the index of a day has one level at a small table, and two at one a hundred times as large.
const FEW: f64 = 200.0;
/// So many count for each row that a statement returns: two levels of an index, and the row. A small table is read whole
/// instead.
const OF_A_ROW: f64 = 3.0;

/// The statement whose buffers per execution grew most.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// The statement.
    pub label: String,
    /// Buffers per execution at the small table.
    pub small: f64,
    /// Buffers per execution at the large table.
    pub large: f64,
    /// Rows that an execution returns at the large table.
    pub rows: f64,
}

impl Growth {
    /// How many times as many buffers it reads at the large table.
    pub fn factor(&self) -> f64 {
        growth_above(FEW.max(OF_A_ROW * self.rows), self.small, self.large)
    }
}

/// How many times as many buffers an item of a piece of work needs at the large table, for which it reads so many rows.
pub fn growth_of_an_item(small: f64, large: f64, rows: f64) -> f64 {
    growth_above(OF_A_ROW * rows, small, large)
}

fn growth_above(few: f64, small: f64, large: f64) -> f64 {
    large.max(few) / small.max(few)
}

/// The statement of both measurements whose buffers per execution grew most, of those that grew as much the one that reads most;
/// `None` if they have none in common.
pub fn largest_growth(small: &[StatementFigures], large: &[StatementFigures]) -> Option<Growth> {
    let in_both = large.iter().filter_map(|after| {
        let before = small.iter().find(|before| before.query_id == after.query_id)?;
        let (small, large) = (before.buffers_per_call(), after.buffers_per_call());
        Some(Growth { label: after.label.clone(), small, large, rows: after.rows_per_call() })
    });
    in_both.max_by(|one, other| one.factor().total_cmp(&other.factor()).then(one.large.total_cmp(&other.large)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(query_id: i64, calls: i64, buffers: i64) -> StatementFigures {
        let label = format!("statement {query_id}");
        StatementFigures { query_id, label, calls, buffers, rows: 0, wal_bytes: 0 }
    }

    #[test]
    fn the_statement_that_grew_most_counts() {
        let small = [figures(1, 10, 10_000), figures(2, 10, 5_000), figures(3, 1, 1)];
        let large = [figures(1, 20, 24_000), figures(2, 10, 10_000), figures(4, 1, 1_000_000)];
        let growth = largest_growth(&small, &large).unwrap();
        assert_eq!((&*growth.label, growth.small, growth.large), ("statement 2", 500.0, 1000.0));
        assert!((growth.factor() - 2.0).abs() < 1e-9);
        assert_eq!(largest_growth(&small, &[]), None);
    }

    #[test]
    fn few_buffers_more_are_no_growth() {
        let growth = largest_growth(&[figures(1, 1, 4)], &[figures(1, 1, 196)]).unwrap();
        assert!((growth.factor() - 1.0).abs() < 1e-9);
        let growth = largest_growth(&[figures(1, 1, 4)], &[figures(1, 1, 640)]).unwrap();
        assert!((growth.factor() - 3.2).abs() < 1e-9);
    }

    #[test]
    fn rows_found_by_their_keys_are_no_growth() {
        assert!((growth_of_an_item(4.0, 12.0, 4.0) - 1.0).abs() < 1e-9);
        assert!((growth_of_an_item(4.0, 12.0, 2.0) - 2.0).abs() < 1e-9);
        let returning = |rows| StatementFigures { rows, ..figures(1, 10, 6_000) };
        let factor = |rows| largest_growth(&[figures(1, 10, 800)], &[returning(rows)]).unwrap().factor();
        assert!((factor(2_000) - 1.0).abs() < 1e-9);
        assert!((factor(0) - 3.0).abs() < 1e-9);
    }
}
