//! The layout of the source: which room may import which.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::support::checkout;

/// The rooms by level: each may import those of lower levels only.
const LEVELS: [&[&str]; 9] = [
    &["definition", "exit_codes", "machine", "paths", "printing", "statistics"],
    &["criterion_dir", "gguf", "onnx", "pictures", "run_data"],
    &["catalogue", "convert", "graph_dtype", "texts"],
    &["fixture", "history", "profile", "selection"],
    &["backend", "compare", "load"],
    &["fleet", "measurement", "report"],
    &["decision", "harness"],
    &["duel", "remote", "selftest", "service"],
    &["cli"],
];

/// The code of a file without its tests and comments. Imports may come after tests that lie in a file of their own.
fn code(text: &str) -> String {
    let are_tests = |part: &&str| part.lines().next().is_some_and(|line| line.ends_with("mod tests {"));
    let code: Vec<&str> = text.split("#[cfg(test)]\n").take_while(|part| !are_tests(part)).collect();
    let code = code.concat();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The rooms that are named after `crate::` in some code, also in braces.
fn imported(code: &str) -> BTreeSet<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut rooms = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            None => drop(rooms.insert(word(rest))),
            Some(list) => rooms.extend(
                list.split('}').next().into_iter().flat_map(|list| list.split(',')).map(|item| word(item.trim())),
            ),
        }
    }
    rooms.remove("");
    rooms
}

#[test]
fn a_room_imports_rooms_below_it_only() {
    let levels: BTreeMap<&str, usize> =
        LEVELS.iter().enumerate().flat_map(|(level, rooms)| rooms.iter().map(move |room| (*room, level))).collect();
    let source = checkout().join("src");
    let files = walkdir::WalkDir::new(&source).into_iter().map(|entry| entry.unwrap().into_path());
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
        let inside = file.strip_prefix(&source).unwrap();
        if inside.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs") {
            continue;
        }
        let room = inside.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned();
        if ["lib", "main", "guide"].contains(&room.as_str()) {
            continue;
        }
        let level = *levels.get(room.as_str()).unwrap_or_else(|| panic!("{room} has no level"));
        for other in imported(&code(&fs::read_to_string(&file).unwrap())) {
            if other != room && levels.get(other.as_str()).is_none_or(|below| *below >= level) {
                wrong.push(format!("{} imports {other}", inside.display()));
            }
        }
        seen.insert(room);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(seen.len(), levels.len(), "a room of the list is gone");
}
