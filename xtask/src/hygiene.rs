//! Looks through the repository's files for what was meant to go before a commit.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    report::{Report, count},
    workspace::Workspace,
};

/// Lines from which a source file should be taken apart. More is a warning, since a long table or a
/// long list of cases can be one idea.
const MOST_LINES: usize = 500;

/// Built files and the history, by name or by the start of a name with a dash. In a linked work tree
/// `.git` is a file.
const NOT_OURS: &[&str] = &[".git", "target"];

/// Macros that stand for code not yet written, in pieces so that this file does not hold them.
const UNFINISHED: &[&str] =
    &[concat!("dbg", "!("), concat!("todo", "!("), concat!("unimplemented", "!(")];

/// What a merge leaves behind, at the start of a line.
const CONFLICTS: &[&str] = &[concat!("<<<<", "<<< "), concat!(">>>>", ">>> ")];

/// Finds what does not belong, and prints the warnings.
pub(crate) fn run(workspace: &Workspace) -> Report {
    look(&workspace.root)
        .map_err(|error| format!("can't look through {}: {error}", workspace.root.display()))
        .and_then(|found| {
            found.warnings.iter().for_each(|warning| println!("warning: {warning}"));
            found.judge()
        })
        .into()
}

#[derive(Debug, Default, PartialEq)]
struct Found {
    files: usize,
    wrong: Vec<String>,
    warnings: Vec<String>,
}

impl Found {
    fn judge(&self) -> Result<String, String> {
        if self.files == 0 {
            Err("found no file to look through".to_owned())
        } else if self.wrong.is_empty() {
            let warnings = count(self.warnings.len(), "warning");
            Ok(format!("{}, {warnings}", count(self.files, "file")))
        } else {
            Err(self.wrong.join("\n"))
        }
    }

    /// Looks at one file, of which `path` is the path from the root.
    fn file(&mut self, path: &Path, text: &str, root: &str) {
        self.files += 1;
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        let path = path.display();
        for (number, line) in (1..).zip(text.lines()) {
            let mut wrong = |what: &str| self.wrong.push(format!("{path}:{number}: {what}"));
            if CONFLICTS.iter().any(|mark| line.starts_with(mark)) {
                wrong("a merge left its mark");
            }
            if names_path(line, root) {
                wrong("names the directory of this checkout, which is nobody else's");
            }
            let is_comment = line.trim_start().starts_with("//");
            if is_rust && !is_comment && UNFINISHED.iter().any(|name| line.contains(name)) {
                wrong("is unfinished");
            }
        }
        let lines = text.lines().count();
        if is_rust && lines > MOST_LINES {
            self.warnings.push(format!("{path} has {lines} lines; over {MOST_LINES} is too long"));
        }
    }
}

/// Goes through every file below `root`, in the order of their names.
fn look(root: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    let mut directories = vec![root.to_path_buf()];
    let here = root.to_string_lossy();
    while let Some(directory) = directories.pop() {
        let mut entries: Vec<PathBuf> = fs::read_dir(&directory)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<_>>()?;
        entries.sort_unstable();
        for path in entries {
            if path.is_symlink() || is_not_ours(&path) {
                continue;
            }
            if path.is_dir() {
                directories.push(path);
            } else if let Ok(text) = String::from_utf8(fs::read(&path)?) {
                found.file(path.strip_prefix(root).unwrap_or(&path), &text, &here);
            }
        }
    }
    Ok(found)
}

fn is_not_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    NOT_OURS.iter().any(|start| name == *start || name.starts_with(&format!("{start}-")))
}

/// Whether `line` has the absolute path `root`, and not another path that ends or goes on like it. A
/// root of a single name, such as a container's `/src`, says nothing about whose it is.
fn names_path(line: &str, root: &str) -> bool {
    let part_of_path = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    root.matches('/').count() > 1
        && line.match_indices(root).any(|(at, _)| {
            !line[..at].ends_with(part_of_path)
                && !line[at + root.len()..].starts_with(part_of_path)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(path: &str, text: &str) -> Found {
        let mut found = Found::default();
        found.file(Path::new(path), text, "/home/someone/aether");
        found
    }

    #[test]
    fn unfinished_code_is_found_with_its_place_and_comments_are_not_code() {
        let unfinished = format!("fn f() {{\n    {}\"later\")\n}}\n", UNFINISHED[1]);
        assert_eq!(found_in("src/a.rs", &unfinished).wrong, ["src/a.rs:2: is unfinished"]);
        let comment = format!("    // Not {}).\n", UNFINISHED[1]);
        assert!(found_in("src/a.rs", &comment).wrong.is_empty());
        assert!(found_in("a.md", &unfinished).wrong.is_empty());
    }

    #[test]
    fn a_merges_mark_and_the_place_of_a_checkout_are_found_in_any_file() {
        let text = format!("fine\n{}HEAD\nfine\n{}theirs\n", CONFLICTS[0], CONFLICTS[1]);
        let wrong = found_in("a.toml", &text).wrong;
        assert_eq!(wrong, ["a.toml:2: a merge left its mark", "a.toml:4: a merge left its mark"]);
        let wrong = found_in("a.md", "cd /home/someone/aether/crates\n").wrong;
        assert!(wrong[0].starts_with("a.md:1: names the directory"), "{wrong:?}");
    }

    #[test]
    fn a_path_that_only_resembles_the_checkouts_is_fine() {
        for line in ["x/home/someone/aether", "/home/someone/aether-2", "/home/someone"] {
            assert!(!names_path(line, "/home/someone/aether"), "{line}");
        }
        assert!(names_path("(/home/someone/aether)", "/home/someone/aether"));
        assert!(!names_path("see /src/lib.rs", "/src"));
    }

    #[test]
    fn a_long_source_file_is_a_warning_and_a_long_table_of_data_is_not() {
        let long = "line\n".repeat(MOST_LINES + 1);
        let found = found_in("src/a.rs", &long);
        assert_eq!(found.warnings.len(), 1);
        assert_eq!(found.judge(), Ok("1 file, 1 warning".to_owned()));
        assert!(found_in("src/a.rs", &"line\n".repeat(MOST_LINES)).warnings.is_empty());
        assert!(found_in("data/a.csv", &long).warnings.is_empty());
    }

    #[test]
    fn looking_at_no_file_is_a_failure() {
        assert!(Found::default().judge().is_err());
    }

    #[test]
    fn built_files_and_the_history_are_not_looked_at() {
        for (name, not_ours) in [
            ("target", true),
            ("target-x", true),
            (".git", true),
            (".github", false),
            ("src", false),
        ] {
            assert_eq!(is_not_ours(Path::new(name)), not_ours, "{name}");
        }
    }

    #[test]
    fn this_repository_is_walked_down_to_this_file() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let found = look(package).unwrap();
        assert!(found.files >= 10, "{found:?}");
        assert_eq!(found.wrong, Vec::<String>::new());
    }
}
