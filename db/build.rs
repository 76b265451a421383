//! Rebuilds after a new migration, because `migrate!` does not notice new files.

fn main() {
    println!("cargo:rerun-if-changed=../migrations");
}
