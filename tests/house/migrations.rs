//! Every table and column has a comment, what runs without a transaction can be repeated, and no index is built under a lock
//! of a table with many rows.

use regex::Regex;

use crate::sources::{migrations, root};

#[test]
fn every_table_and_column_is_commented() {
    let mut tables = 0;
    for (file, sql) in migrations() {
        // A table whose name a function makes has the comments of the table that it is like.
        for table in sql.split("CREATE TABLE ").skip(1).filter(|table| !table.starts_with('%')) {
            tables += 1;
            let (name, rest) = table.split_once(" (").unwrap();
            assert!(sql.contains(&format!("COMMENT ON TABLE  {name} ")), "{file}: table {name} has no comment");
            let body = rest.split_once("\n)").unwrap().0;
            let columns = body.lines().map(str::trim).filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
            for column in columns.map(|line| line.split(' ').next().unwrap()) {
                assert!(is_commented(&sql, name, column), "{file}: {name}.{column} has no comment");
            }
        }
    }
    assert!(tables >= 8, "the migrations were not found");
}

#[test]
fn every_added_column_is_commented() {
    let mut columns = 0;
    for (file, sql) in migrations() {
        let added = added_columns(&sql);
        assert_eq!(added.len(), sql.matches("ADD COLUMN ").count(), "{file}: an ADD COLUMN is written in another way");
        for (table, column) in added {
            columns += 1;
            assert!(is_commented(&sql, &table, &column), "{file}: {table}.{column} has no comment");
        }
    }
    assert!(columns >= 40, "the added columns were not found");
}

/// If a process ends between an index and the record of its migration, the migration runs again and must succeed.
#[test]
fn unlocked_migrations_can_be_repeated() {
    let mut unlocked = 0;
    for (file, sql) in migrations() {
        if sql.starts_with("-- no-transaction") {
            unlocked += 1;
            // A `DO` block commits batches; each of them, and its functions, can be repeated.
            let is_index = sql.contains("INDEX CONCURRENTLY IF NOT EXISTS ");
            let is_block = sql.contains("\nDO $$\n") && sql.contains(" COMMIT;") && !sql.contains("CREATE FUNCTION ");
            assert!(is_index || is_block, "{file}");
        }
    }
    assert!(unlocked > 0, "the migrations were not found");
}

/// What writes a row of runs or occurrences would wait until the index of all rows is built. So the index of a partition is built
/// `CONCURRENTLY`, and `migrate` builds those of the days before the migration that creates the index of the table.
#[test]
fn indexes_of_large_tables_are_built_unlocked() {
    let built_before = std::fs::read_to_string(root().join("db/src/migrate/partition_indexes.rs")).unwrap();
    let created =
        Regex::new(r"CREATE (?:UNIQUE )?INDEX (CONCURRENTLY )?(?:IF NOT EXISTS )?([\w%]+) ON (?:ONLY )?([\w%]+)")
            .unwrap();
    let mut unlocked = 0;
    for (file, sql) in migrations() {
        // What landed before has a table of waits in docs/deploy.md.
        if number(&file) <= 118 {
            continue;
        }
        for index in created.captures_iter(&sql) {
            let (name, table) = (&index[2], &index[3]);
            // `%I` may be any of their partitions.
            if !["runs", "occurrences", "%"].iter().any(|large| table.starts_with(large)) {
                continue;
            }
            let is_of_days = ["runs", "runs_ended", "occurrences"].contains(&table);
            let is_built_before = is_of_days && built_before.contains(&format!("\"{name}\""));
            assert!(index.get(1).is_some() || is_built_before, "{file}: writes of {table} wait for {name}");
            unlocked += 1;
        }
    }
    assert!(unlocked >= 2, "the indexes were not found");
}

/// The number in the name of a migration.
fn number(file: &str) -> u32 {
    let name = file.rsplit_once('/').unwrap().1;
    name.split_once('_').unwrap().0.parse().unwrap()
}

/// Whether the migration itself says what the column is for.
fn is_commented(sql: &str, table: &str, column: &str) -> bool {
    sql.contains(&format!("COMMENT ON COLUMN {table}.{column} "))
}

/// The columns that a migration adds to existing tables, each with its table.
fn added_columns(sql: &str) -> Vec<(String, String)> {
    let statement = Regex::new(r"ALTER TABLE (\w+)([^;]*);").unwrap();
    let column = Regex::new(r"ADD COLUMN (?:IF NOT EXISTS )?(\w+)").unwrap();
    let statements = statement.captures_iter(sql).map(|found| (found[1].to_owned(), found[2].to_owned()));
    let added = statements.flat_map(|(table, rest)| {
        let names: Vec<String> = column.captures_iter(&rest).map(|found| found[1].to_owned()).collect();
        names.into_iter().map(move |name| (table.clone(), name))
    });
    added.collect()
}
