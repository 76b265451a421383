//! By how much a statement reads more at a large table than at a small one.

use super::statements::StatementFigures;

/// Fewer buffers than these count as these: an index has one level more at a table a hundred times as large, and the
/// statistics of a small team have no row for most minutes of a day.
const FEW: f64 = 64.0;

/// The statement whose buffers per execution grew most.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// The statement.
    pub label: String,
    /// Buffers per execution at the small table.
    pub small: f64,
    /// Buffers per execution at the large table.
    pub large: f64,
}

impl Growth {
    /// How many times as many buffers it reads at the large table.
    pub fn factor(&self) -> f64 {
        self.large.max(FEW) / self.small.max(FEW)
    }
}

/// The statement of both measurements whose buffers per execution grew most; `None` if they have none in common.
pub fn largest_growth(small: &[StatementFigures], large: &[StatementFigures]) -> Option<Growth> {
    let in_both = large.iter().filter_map(|after| {
        let before = small.iter().find(|before| before.query_id == after.query_id)?;
        let (small, large) = (before.buffers_per_call(), after.buffers_per_call());
        Some(Growth { label: after.label.clone(), small, large })
    });
    in_both.max_by(|one, other| one.factor().total_cmp(&other.factor()))
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
        let growth = largest_growth(&[figures(1, 1, 4)], &[figures(1, 1, 58)]).unwrap();
        assert!((growth.factor() - 1.0).abs() < 1e-9);
        let growth = largest_growth(&[figures(1, 1, 4)], &[figures(1, 1, 640)]).unwrap();
        assert!((growth.factor() - 10.0).abs() < 1e-9);
    }
}
