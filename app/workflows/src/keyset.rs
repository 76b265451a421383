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

    /// Merges the pages of several scopes of one list, each read from the same key on, into one page.
    ///
    /// The page ends where the first of them ends: beyond it, rows of that scope would be missing.
    pub fn merge(mut pages: Vec<Self>, limit: i64, order: KeyOrder, key: impl Fn(&T) -> K) -> Self
    where
        K: Ord + Copy,
    {
        if pages.len() == 1 {
            return pages.pop().unwrap_or_else(Self::empty);
        }
        let compare = |a: &K, b: &K| match order {
            KeyOrder::Ascending => a.cmp(b),
            KeyOrder::Descending => b.cmp(a),
        };
        let end = pages.iter().filter_map(|page| page.next).min_by(compare);
        let mut rows: Vec<T> = pages.into_iter().flat_map(|page| page.rows).collect();
        rows.retain(|row| end.is_none_or(|end| compare(&key(row), &end).is_le()));
        rows.sort_by(|a, b| compare(&key(a), &key(b)));
        let Self { rows, next } = Self::of_rows(rows, limit, key);
        Self { rows, next: next.or(end) }
    }
}

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// The lowest key first.
    Ascending,
    /// The highest key first.
    Descending,
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

    /// A row after the end of another scope's page waits for the next page, or rows before it would be skipped.
    #[test]
    fn merged_pages_skip_no_row() {
        let all: [&[i64]; 3] = [&[1, 4, 5, 9, 12], &[2, 3, 10, 11], &[]];
        for (limit, order) in
            [1, 2, 3, 5, 20].into_iter().flat_map(|n| [(n, KeyOrder::Ascending), (n, KeyOrder::Descending)])
        {
            let (mut read, mut after) = (Vec::new(), None);
            loop {
                let pages = all.iter().map(|rows| {
                    let mut rows = rows.to_vec();
                    if order == KeyOrder::Descending {
                        rows.reverse();
                    }
                    rows.retain(|row| {
                        after.is_none_or(|after| if order == KeyOrder::Ascending { *row > after } else { *row < after })
                    });
                    KeysetPage::of_rows(rows, limit, |row| *row)
                });
                let page = KeysetPage::merge(pages.collect(), limit, order, |row| *row);
                assert!(page.rows.len() <= usize::try_from(limit).unwrap());
                read.extend(page.rows);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            if order == KeyOrder::Descending {
                read.reverse();
            }
            assert_eq!(read, [1, 2, 3, 4, 5, 9, 10, 11, 12], "{limit} {order:?}");
        }
        // A page that passed over rows has a key, and perhaps no row.
        let passed = KeysetPage { rows: vec![], next: Some(4) };
        let page = KeysetPage::merge(
            vec![passed, KeysetPage { rows: vec![3, 5], next: None }],
            9,
            KeyOrder::Ascending,
            |row| *row,
        );
        assert_eq!((page.rows, page.next), (vec![3], Some(4)));
    }
}
