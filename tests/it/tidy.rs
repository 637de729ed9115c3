//! The rings: which folder of `src/` may use which.

use std::fs;
use std::path::{Path, PathBuf};

/// Each module, and what it may use of ours. `ARCHITECTURE.md` has the same table.
const MAY_USE: [(&str, &[&str]); 8] = [
    ("limit", &[]),
    ("clock", &["limit"]),
    ("key", &["limit"]),
    ("response", &["limit"]),
    ("store", &["limit", "clock"]),
    ("limiter", &["limit", "clock", "store"]),
    (
        "middleware",
        &["limit", "clock", "key", "response", "store", "limiter"],
    ),
    (
        "admin",
        &[
            "limit",
            "clock",
            "key",
            "response",
            "store",
            "limiter",
            "middleware",
        ],
    ),
];

pub(crate) fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// The module of `src/` that a file belongs to.
fn module(file: &Path) -> String {
    let first = file
        .strip_prefix(source())
        .unwrap()
        .components()
        .next()
        .unwrap();
    first
        .as_os_str()
        .to_string_lossy()
        .trim_end_matches(".rs")
        .to_owned()
}

/// The modules that a file's code names as `crate::…`.
fn used(text: &str) -> Vec<String> {
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let code: String = code.flat_map(|line| [line, "\n"]).collect();
    let names = code.split("crate::").skip(1).flat_map(|rest| {
        let rest = rest.split(';').next().unwrap_or(rest);
        // `crate::{clock, limit::Key}` names several.
        match rest.strip_prefix('{') {
            Some(list) => list.split(',').map(str::trim).map(str::to_owned).collect(),
            None => vec![rest.to_owned()],
        }
    });
    let is_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
    names
        .map(|name| {
            name.chars()
                .take_while(|char| is_name(*char))
                .collect::<String>()
        })
        .filter(|name| MAY_USE.iter().any(|(module, _)| module == name))
        .collect()
}

#[test]
fn arrows_between_modules_go_down_only() {
    let mut arrows = 0;
    for file in files(&source()) {
        let from = module(&file);
        if from == "lib" {
            continue;
        }
        let entry = MAY_USE.iter().find(|(module, _)| *module == from);
        let (_, allowed) = entry.unwrap_or_else(|| panic!("{} is in no ring", file.display()));
        for to in used(&fs::read_to_string(&file).unwrap()) {
            arrows += 1;
            assert!(
                to == from || allowed.contains(&&*to),
                "{}: {from} may not use {to}",
                file.display()
            );
        }
    }
    assert!(arrows > 50, "the search for arrows finds only {arrows}");
}

#[test]
fn a_forbidden_arrow_is_seen() {
    assert_eq!(used("use crate::store::Charge;"), ["store"]);
    assert_eq!(used("use crate::clock::{self, Clock};"), ["clock"]);
    assert_eq!(used("use crate::{limit::Key, store};"), ["limit", "store"]);
    assert_eq!(
        used("// crate::store\nlet x = crate::limiter::Check;"),
        ["limiter"]
    );
}

/// The names in a cell of a table, like `` `clock`, `key` ``.
fn names(cell: &str) -> Vec<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_rings_table_is_that_of_the_architecture_page() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("### Import rules").unwrap();
    let (table, _) = table.split_once("\n#").unwrap();
    let mut found = 0;
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.split('|').collect();
        for module in names(cells[1]) {
            let entry = MAY_USE.iter().find(|(name, _)| *name == module);
            let (_, allowed) = entry.unwrap_or_else(|| panic!("{module} is in no ring"));
            let told = names(cells[2]);
            let is_all =
                cells[2].trim() == "all of the above" && matches!(&*module, "middleware" | "admin");
            assert!(is_all || told == *allowed, "{module}: {told:?}");
            found += 1;
        }
    }
    assert_eq!(found, MAY_USE.len());
}

#[test]
fn nothing_goes_around_the_rings_by_a_public_name() {
    for file in files(&source())
        .into_iter()
        .filter(|file| module(file) != "lib")
    {
        let text = fs::read_to_string(&file).unwrap();
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            let mut paths = line.split("crate::").skip(1);
            let is_root_name =
                paths.any(|rest| rest.starts_with(|char: char| char.is_ascii_uppercase()));
            assert!(!is_root_name, "{}: {line}", file.display());
        }
    }
}

#[test]
fn files_stay_small() {
    for file in files(&source()) {
        let text = fs::read_to_string(&file).unwrap();
        let code = text
            .split("#[cfg(test)]\nmod tests")
            .next()
            .unwrap_or(&text);
        let lines = code.lines().count();
        let is_test = file
            .components()
            .any(|part| part.as_os_str() == "tests" || part.as_os_str() == "suite");
        assert!(
            is_test || lines <= 400,
            "{} has {lines} lines",
            file.display()
        );
    }
}
