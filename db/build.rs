//! A new migration is compiled in: `migrate!` alone does not notice new files.

fn main() {
    println!("cargo:rerun-if-changed=../migrations");
}
