//! Steps 1 and 7 of 7: one page of a list, read by key.
//!
//! A statement of a list reads rows in the order of an index, from the key of the page before. It passes over at most
//! [`SCANNED`] rows, so that a filter that few rows match costs no more than any other page: such a page may have few
//! rows, or none, and its key leads on. Both statements of a page must see the same snapshot.

/// How many rows a statement of a list passes over at most: the `LIMIT` inside of each.
pub const SCANNED: usize = 5_000;

/// The rows of one page, and the key after which the next page begins.
#[derive(Clone, Debug)]
pub struct KeysetPage<T, K> {
    /// The rows, in the order of their keys.
    pub rows: Vec<T>,
    /// The key of the last row that this page covers; `None`: there are no more.
    pub next: Option<K>,
}

impl<T, K> KeysetPage<T, K> {
    /// A page without rows, and without a next page.
    #[must_use]
    pub fn empty() -> Self {
        Self { rows: Vec::new(), next: None }
    }

    /// Cuts rows that were read with one extra row, which says whether more rows follow.
    pub fn of_rows(mut rows: Vec<T>, limit: i64, key: impl Fn(&T) -> K) -> Self {
        let limit = usize::try_from(limit).unwrap_or_default();
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| has_more).map(key);
        Self { rows, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extra_row_leads_to_the_next_page() {
        let page = |rows: &[i64]| KeysetPage::of_rows(rows.to_vec(), 2, |row| *row);
        assert_eq!((page(&[1, 2, 3]).rows, page(&[1, 2, 3]).next), (vec![1, 2], Some(2)));
        assert_eq!((page(&[1, 2]).rows, page(&[1, 2]).next), (vec![1, 2], None));
    }
}
