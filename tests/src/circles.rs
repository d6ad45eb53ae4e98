//! Folders of a crate depend on one another in one direction: none may use, over any way, what uses it.
//!
//! The sources are read with a small lexer: `use` trees and paths from `crate` and `super`, without comments, texts and
//! test code. What a crate's root hands on (`crate::Object`) is not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Circles that are still there, with the reason; each may become smaller, and none larger.
const ALLOWED: &[(&str, &[&str], &str)] =
    &[("storage", &["csi", "volumes"], "the volumes name all plugins, CSI's among them")];

/// Folders by the folders that they use.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The source without comments and with empty texts, so that only code is left.
fn code_of(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    loop {
        let plain = rest.find(['/', '"', 'r', '\'']).unwrap_or(rest.len());
        out.push_str(&rest[..plain]);
        rest = &rest[plain..];
        let skipped = match rest.chars().next() {
            None => return out,
            Some('/') if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            Some('/') if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            Some('"') => text_end(rest),
            Some('r') if rest.starts_with("r\"") || rest.starts_with("r#") => raw_text_end(rest),
            Some('\'') => char_end(rest),
            _ => 0,
        };
        // What is passed over still parts the words around it.
        out.push_str(if skipped > 0 { " " } else { &rest[..1] });
        rest = &rest[skipped.max(1)..];
    }
}

/// Where the text ends that begins at the start.
fn text_end(source: &str) -> usize {
    let mut escaped = false;
    for (at, c) in source.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    source.len()
}

/// As [`text_end`], of `r#"..."#`; 0 where this is no text but a name.
fn raw_text_end(source: &str) -> usize {
    let hashes = source[1..].chars().take_while(|c| *c == '#').count();
    if !source[1 + hashes..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let body = 2 + hashes;
    source[body..].find(&end).map_or(source.len(), |at| body + at + end.len())
}

/// Where a character ends; 0 for a lifetime.
fn char_end(source: &str) -> usize {
    let mut chars = source.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            source[2..].char_indices().skip(1).find(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 3)
        }
        Some(_) => chars.next().filter(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 1),
        None => 0,
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Words and single signs.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(c) = rest.chars().next() {
        let length = match c {
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            c => c.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

/// Whether the tokens begin an item that only tests have; how many tokens say so.
fn test_only(tokens: &[&str]) -> Option<usize> {
    let marks: [&[&str]; 2] = [&["#", "[", "cfg", "(", "test", ")", "]"], &["#", "[", "test", "]"]];
    marks.into_iter().find(|mark| tokens.starts_with(mark)).map(<[&str]>::len)
}

/// The end of the item that begins at the start: behind its block, or its semicolon.
fn item_end(tokens: &[&str]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "{" => depth += 1,
            "}" if depth == 1 => return at + 1,
            "}" => depth = depth.saturating_sub(1),
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Tokens of what the program itself is made of, and the modules that are declared for tests only.
fn without_tests<'t>(all: &[&'t str]) -> (Vec<&'t str>, BTreeSet<String>) {
    let (mut kept, mut test_modules) = (Vec::new(), BTreeSet::new());
    let mut at = 0;
    while at < all.len() {
        let Some(mark) = test_only(&all[at..]) else {
            kept.push(all[at]);
            at += 1;
            continue;
        };
        let item = &all[at + mark..];
        let end = item_end(item);
        let name = item[..end].iter().position(|t| *t == "mod").and_then(|m| item.get(m + 1));
        test_modules.extend(name.map(|name| (*name).to_owned()));
        at += mark + end;
    }
    (kept, test_modules)
}

/// All paths that begin with `crate`, `self` or `super`, groups of `use` spread out; two steps are enough.
fn paths(tokens: &[&str]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let begins = matches!(*token, "crate" | "super" | "self") && tokens.get(at + 1) == Some(&"::");
        if begins && (at == 0 || tokens[at - 1] != "::") {
            spread(&tokens[at..], &mut Vec::new(), &mut found);
        }
    }
    found
}

/// Follows one path, or one tree of a `use`; returns how many tokens it takes.
fn spread(tokens: &[&str], before: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> usize {
    let own = before.len();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match *token {
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|t| *t != "}") {
                    at += spread(&tokens[at..], before, found).max(1);
                }
                before.truncate(own);
                return at + 1;
            }
            name if name.starts_with(is_word) || name == "*" => before.push(name.to_owned()),
            _ => break,
        }
        at += 1;
        if tokens.get(at) != Some(&"::") {
            break;
        }
        at += 1;
    }
    found.push(before.clone());
    before.truncate(own);
    at
}

/// The module of a file below `src`, and the name that its folder has.
fn module_of(file: &Path) -> Vec<String> {
    let mut parts: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// The top-level module that a path leads to from a module, if it leads to one.
fn target<'p>(module: &'p [String], path: &'p [String], modules: &BTreeSet<String>) -> Option<&'p String> {
    let ups = path.iter().take_while(|step| *step == "super").count();
    let first = path.get(ups.max(1))?;
    let base = match path[0].as_str() {
        "crate" => &[],
        "super" => module.get(..module.len().checked_sub(ups)?)?,
        _ => module,
    };
    let top = base.first().unwrap_or(first);
    modules.contains(top).then_some(top)
}

fn files_below(dir: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_below(&path, all);
        } else if path.extension().is_some_and(|e| e == "rs") {
            all.push(path);
        }
    }
}

/// What the folders of a crate use of one another.
fn graph_of(src: &Path) -> Graph {
    let mut files = Vec::new();
    files_below(src, &mut files);
    let mut read = Vec::new();
    let mut for_tests = BTreeSet::new();
    for file in &files {
        let module = module_of(file.strip_prefix(src).unwrap_or(file));
        let code = code_of(&std::fs::read_to_string(file).unwrap_or_default());
        let all = tokens(&code);
        let (kept, test_modules) = without_tests(&all);
        for name in test_modules {
            for_tests.insert([module.as_slice(), &[name]].concat());
        }
        read.push((module, paths(&kept)));
    }
    let modules: BTreeSet<String> = read.iter().filter_map(|(module, _)| module.first().cloned()).collect();
    let mut graph = Graph::new();
    for (module, paths) in &read {
        let named_so = module.last().is_some_and(|name| name.ends_with("_tests"));
        let is_test = named_so || (1..=module.len()).any(|end| for_tests.contains(&module[..end]));
        let Some(own) = module.first().filter(|_| !is_test) else { continue };
        let used = paths.iter().filter_map(|path| target(module, path, &modules)).filter(|top| *top != own);
        graph.entry(own.clone()).or_default().extend(used.cloned());
    }
    graph
}

/// Folders with a manifest, so many levels deep.
fn crates(dir: &Path, levels: usize) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for path in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if levels > 0 && path.is_dir() && !path.ends_with("target") {
            all.extend(crates(&path, levels - 1));
            if path.join("Cargo.toml").is_file() {
                all.push(path);
            }
        }
    }
    all
}

fn reached<'g>(graph: &'g Graph, from: &'g str) -> BTreeSet<&'g str> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(folder) = next.pop() {
        for used in graph.get(folder).into_iter().flatten() {
            if seen.insert(used.as_str()) {
                next.push(used);
            }
        }
    }
    seen
}

/// Sets of folders of which each reaches each other.
fn circles(graph: &Graph) -> BTreeSet<BTreeSet<&str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|f| (f.as_str(), reached(graph, f))).collect();
    let mutual = |a: &str, b: &str| {
        let reaches = |from: &str, to: &str| reach.get(from).is_some_and(|seen| seen.contains(to));
        reaches(a, b) && reaches(b, a)
    };
    let around =
        |folder: &&str| graph.keys().map(String::as_str).filter(|other| mutual(folder, other)).collect();
    reach.keys().map(around).filter(|circle: &BTreeSet<&str>| circle.len() > 1).collect()
}

/// Edges among the folders of a circle, as they are told.
fn edges(graph: &Graph, circle: &BTreeSet<&str>) -> String {
    let inside = graph.iter().filter(|(folder, _)| circle.contains(folder.as_str()));
    let edges = inside.flat_map(|(folder, used)| {
        let used = used.iter().filter(|used| circle.contains(used.as_str()));
        used.map(move |used| format!("{folder} -> {used}"))
    });
    edges.collect::<Vec<_>>().join(", ")
}

#[test]
fn folders_depend_on_one_another_in_one_direction() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let (mut wrong, mut met) = (Vec::new(), BTreeSet::new());
    for crate_dir in crates(root, 2) {
        let name = crate_dir.strip_prefix(root).unwrap_or(&crate_dir).display().to_string();
        let graph = graph_of(&crate_dir.join("src"));
        for circle in circles(&graph) {
            println!("{name}: {circle:?}");
            let allowed = ALLOWED.iter().position(|(of, folders, _)| {
                *of == name && circle.iter().all(|folder| folders.contains(folder))
            });
            match allowed {
                Some(entry) => drop(met.insert(entry)),
                None => wrong.push(format!("{name}: {}", edges(&graph, &circle))),
            }
        }
    }
    let gone = (0..ALLOWED.len()).filter(|entry| !met.contains(entry)).map(|entry| ALLOWED[entry]);
    wrong.extend(gone.map(|(name, folders, _)| format!("{name}: allowed, and there no more: {folders:?}")));
    assert!(wrong.is_empty(), "folders that use each other:\n{}", wrong.join("\n"));
}

#[test]
fn imports_are_found() {
    let code = code_of(
        r##"
        //! use crate::comment;
        use crate::{a::{self, X}, b, c::*};
        use super::d;
        fn f<'a>(x: &'a str) { let q = '"'; crate::e::g("crate::text"); let r = r#"crate::raw"#; }
        #[cfg(test)]
        mod tests { use crate::only_tests; }
        "##,
    );
    let all = tokens(&code);
    let (kept, test_modules) = without_tests(&all);
    let modules =
        ["a", "b", "c", "e", "here", "comment", "text", "raw", "only_tests"].map(str::to_owned).into();
    let here = ["here".to_owned(), "inner".to_owned()];
    let paths = paths(&kept);
    let found: BTreeSet<&str> =
        paths.iter().filter_map(|path| target(&here, path, &modules)).map(String::as_str).collect();
    assert_eq!(found, ["a", "b", "c", "e", "here"].into());
    assert_eq!(test_modules, ["tests".to_owned()].into());
}

#[test]
fn circles_are_found_over_any_way() {
    let graph: Graph = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("e", "d")]
        .map(|(from, to)| (from.to_owned(), [to.to_owned()].into()))
        .into();
    assert_eq!(circles(&graph), [["a", "b", "c"].into()].into());
}
