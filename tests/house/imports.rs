//! Which file of a crate imports which, read from its sources.
//!
//! A path through a re-export counts for the file that defines the item. Comments, raw strings and `#[cfg(test)]` code
//! do not count. The declaration of a module is no import, and neither is the call of a method.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::sources::rust_files;

/// The module of `main.rs` in a crate that also has a library.
const MAIN: &str = "main.rs";

static RAW_STRING: LazyLock<Regex> = LazyLock::new(|| Regex::new(r###"(?s)r#".*?"#"###).unwrap());
static COMMENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?m)(^|\s)//.*$").unwrap());
static INLINE_TESTS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"#\[cfg\(test\)\]\s*mod \w+ \{").unwrap());
static TEST_MODULE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))? )?mod (\w+);").unwrap());
static TEST_USE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))? )?use [^;]+;").unwrap());
static INLINE_MODULE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?ms)^(?:pub(?:\([^)]*\))? )?mod \w+ \{\n.*?^\}").unwrap());
static USE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?m)^\s*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);").unwrap());
static PATH: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?:^|[^\w:])([a-z_]\w*(?:::\w+)+)").unwrap());

/// A module by its path in the crate; empty is the root.
type Module = Vec<String>;

/// Which file imports which, by their paths below `src`.
pub(crate) type Imports = BTreeMap<String, BTreeSet<String>>;

/// The sources of one crate.
pub(crate) struct Sources {
    name: String,
    files: BTreeMap<Module, File>,
}

struct File {
    /// Below `src`, for example `drain/batch.rs`.
    path: String,
    uses: Vec<Use>,
    /// The text without `use` lines.
    body: String,
}

/// One name that a `use` line brings into scope.
struct Use {
    is_public: bool,
    path: Vec<String>,
    name: String,
}

impl Sources {
    /// Reads the crate `name` from its folder `src`.
    pub(crate) fn read(name: &str, src: &Path) -> Sources {
        let texts = rust_files(src).into_iter().map(|file| {
            let path = file.strip_prefix(src).unwrap().to_str().unwrap().to_owned();
            (path, std::fs::read_to_string(&file).unwrap())
        });
        Sources::of(name, texts.collect())
    }

    /// The crate `name` with these files, each a path and a text.
    fn of(name: &str, texts: Vec<(String, String)>) -> Sources {
        let has_lib = texts.iter().any(|(path, _)| path == "lib.rs");
        let mut files = BTreeMap::new();
        let mut tests = Vec::new();
        for (path, text) in texts {
            let module = module_of(&path, has_lib);
            let declared = TEST_MODULE.captures_iter(&text).map(|found| inner(&module, &found[1]));
            tests.extend(declared);
            let text = shipped(&text);
            let body = USE.replace_all(&text, "").into_owned();
            files.insert(module, File { path, uses: uses_of(&text), body });
        }
        files.retain(|module, _| !tests.contains(module));
        Sources { name: name.to_owned(), files }
    }

    /// Returns each file with the files that it imports.
    pub(crate) fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (module, file) in &self.files {
            let named = self.named_in(module, file);
            let defined = named.iter().map(|item| self.files[&self.definer(item)].path.clone());
            imports.insert(file.path.clone(), defined.filter(|path| *path != file.path).collect());
        }
        imports
    }

    /// The items of the crate that a file names.
    fn named_in(&self, module: &[String], file: &File) -> Vec<Module> {
        let mut named = Vec::new();
        let mut modules = BTreeMap::new();
        for one in &file.uses {
            match self.absolute(module, &one.path) {
                // Only the items count that the file takes from the module.
                Some(path) if self.files.contains_key(&path) && !one.is_public => {
                    modules.insert(one.name.as_str(), path);
                }
                Some(path) => named.push(path),
                None => {}
            }
        }
        for found in PATH.captures_iter(&file.body) {
            let path: Vec<String> = found[1].split("::").map(str::to_owned).collect();
            named.extend(match modules.get(path[0].as_str()) {
                Some(imported) => Some([imported.as_slice(), &path[1..]].concat()),
                None => self.absolute(module, &path),
            });
        }
        named
    }

    /// Returns a path from the root of the crate; `None` if it leads to another crate.
    fn absolute(&self, from: &[String], path: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        if from.first().is_some_and(|first| first == MAIN) {
            return (*first == self.name).then(|| rest.to_vec());
        }
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([from, rest].concat()),
            "super" => {
                let above = &from[..from.len().saturating_sub(1)];
                let is_super = rest.first().is_some_and(|next| next == "super");
                if is_super { self.absolute(above, rest) } else { Some([above, rest].concat()) }
            }
            name => self.files.contains_key(&inner(from, name)).then(|| [from, path].concat()),
        }
    }

    /// Returns the module whose file defines an item, through re-exports.
    fn definer(&self, item: &[String]) -> Module {
        let mut at = Module::new();
        for (passed, name) in item.iter().enumerate() {
            let child = inner(&at, name);
            if self.files.contains_key(&child) {
                at = child;
                continue;
            }
            let brought = self.files[&at].uses.iter().find(|one| one.name == *name);
            return match brought.and_then(|one| self.absolute(&at, &one.path)) {
                Some(target) if target != child => self.definer(&[target.as_slice(), &item[passed + 1..]].concat()),
                _ => at,
            };
        }
        at
    }
}

impl Use {
    fn of(is_public: bool, text: &str) -> Use {
        let (path, alias) = text.split_once(" as ").unwrap_or((text, ""));
        let mut path: Vec<String> = path.split("::").map(|segment| segment.trim().to_owned()).collect();
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = if alias.is_empty() { path.last().cloned().unwrap_or_default() } else { alias.trim().to_owned() };
        Use { is_public, path, name }
    }
}

/// A circle of imports, if there is one: each file imports the next, and the last one the first.
pub(crate) fn circle_in(imports: &Imports) -> Option<Vec<String>> {
    let mut left: BTreeSet<String> = imports.keys().cloned().collect();
    loop {
        // A file that imports none of those left is in no circle.
        let free = left.iter().find(|file| imports[*file].is_disjoint(&left)).cloned();
        let Some(free) = free else { break };
        left.remove(&free);
    }
    let mut way = vec![left.first()?.clone()];
    loop {
        let next = imports[way.last()?].intersection(&left).next()?.clone();
        if let Some(at) = way.iter().position(|passed| *passed == next) {
            return Some(way.split_off(at));
        }
        way.push(next);
    }
}

fn inner(module: &[String], name: &str) -> Module {
    [module, &[name.to_owned()]].concat()
}

fn module_of(path: &str, has_lib: bool) -> Module {
    let module = path.strip_suffix(".rs").unwrap_or(path);
    match module.strip_suffix("/mod").unwrap_or(module) {
        "lib" => Module::new(),
        "main" if has_lib => vec![MAIN.to_owned()],
        "main" => Module::new(),
        module => module.split('/').map(str::to_owned).collect(),
    }
}

/// The text without comments, raw strings and test code. In an inline module, `super` is the file.
fn shipped(text: &str) -> String {
    let text = RAW_STRING.replace_all(text, "");
    let text = COMMENT.replace_all(&text, "$1");
    let text = INLINE_TESTS.split(&text).next().unwrap_or_default();
    let text = TEST_MODULE.replace_all(text, "");
    let text = TEST_USE.replace_all(&text, "");
    INLINE_MODULE.replace_all(&text, |found: &Captures<'_>| found[0].replace("super::", "self::")).into_owned()
}

fn uses_of(text: &str) -> Vec<Use> {
    let lines = USE.captures_iter(text);
    let uses =
        lines.flat_map(|line| expand(&line[2]).into_iter().map(move |path| Use::of(line.get(1).is_some(), &path)));
    uses.collect()
}

/// `a::{b, c::{d, self}}` as `a::b`, `a::c::d` and `a::c::self`.
fn expand(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let body = rest.rsplit_once('}').unwrap().0;
    let mut depth = 0;
    let branches = body.split(|character: char| {
        depth += i32::from(character == '{') - i32::from(character == '}');
        character == ',' && depth == 0
    });
    let paths = branches.filter(|branch| !branch.trim().is_empty()).flat_map(expand);
    paths.map(|path| format!("{}{path}", head.trim())).collect()
}

fn crate_of(texts: &[(&str, &str)]) -> Sources {
    Sources::of("house", texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
}

fn imported(imports: &Imports, file: &str) -> String {
    imports[file].iter().cloned().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_kind_of_import_is_read() {
    let imports = crate_of(&[
        ("lib.rs", "mod a;\nmod b;\npub use crate::{\n    a::One,\n    b::{inside::Two, run as start},\n};\n"),
        ("main.rs", "use house::One;\nfn main() {\n    house::start();\n}\n"),
        ("a.rs", "use crate::Two;\nuse super::b;\nfn a() { b::run(); }\n"),
        ("b.rs", "mod inside;\nfn b() { inside::two(); }\n"),
        ("b/inside.rs", "mod deep {\n    use super::Two;\n    fn c() { crate::a::one(); }\n}\n"),
    ])
    .imports();
    assert_eq!(imported(&imports, "lib.rs"), "a.rs b.rs b/inside.rs");
    assert_eq!(imported(&imports, "main.rs"), "a.rs b.rs");
    assert_eq!(imported(&imports, "a.rs"), "b.rs b/inside.rs");
    assert_eq!(imported(&imports, "b.rs"), "b/inside.rs");
    assert_eq!(imported(&imports, "b/inside.rs"), "a.rs");
}

#[test]
fn comments_and_tests_import_nothing() {
    let text = "//! See crate::b::run.\n#[cfg(test)]\nuse crate::b::one;\n#[cfg(test)]\nmod fixture;\n\
                // crate::b::run\n#[cfg(test)]\nmod tests {\n    use crate::b::run;\n}\n";
    let imports = crate_of(&[("lib.rs", ""), ("a.rs", text), ("a/fixture.rs", "use crate::b::run;\n"), ("b.rs", "")]);
    let imports = imports.imports();
    assert_eq!(imported(&imports, "a.rs"), "");
    assert!(!imports.contains_key("a/fixture.rs"));
}

#[test]
fn a_circle_is_found() {
    let circle = |c: &str| {
        let texts = [("lib.rs", "pub use a::A;\n"), ("a.rs", "use crate::b::B;\n"), ("b.rs", "use crate::c::C;\n")];
        circle_in(&crate_of(&[&texts[..], &[("c.rs", c)]].concat()).imports())
    };
    assert_eq!(circle("use crate::A;\n"), Some(["a.rs", "b.rs", "c.rs"].map(str::to_owned).to_vec()));
    assert_eq!(circle(""), None);
}
