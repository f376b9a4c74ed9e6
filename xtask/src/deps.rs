//! Asserts who sees whom, from what cargo knows and not from what a manifest seems to say.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    report::{Report, count},
    workspace::Workspace,
};

/// The arrows that are allowed between the crates of the workspace; ARCHITECTURE.md says why. Any other
/// is a failure, and so is a crate that has no row. A row may stand here before its crate does.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { of: "aether", sees: LIBRARIES, tests_see: &["aether-conformance"] },
    Row { of: "aether-benches", sees: &["aether"], tests_see: &[] },
    Row { of: "aether-cli", sees: &["aether"], tests_see: &[] },
    Row { of: "aether-collective", sees: &["aether-core"], tests_see: &["aether-conformance", "aether-host"] },
    Row { of: "aether-conformance", sees: &["aether-collective", "aether-core", "aether-residency"], tests_see: &["aether-host"] },
    Row { of: "aether-core", sees: &[], tests_see: SUITES },
    Row { of: "aether-cuda", sees: &["aether-core"], tests_see: SUITES },
    Row { of: "aether-host", sees: &["aether-collective", "aether-core"], tests_see: SUITES },
    Row { of: "aether-mpi", sees: &["aether-collective", "aether-core"], tests_see: SUITES },
    Row { of: "aether-nccl", sees: &["aether-collective", "aether-core", "aether-cuda"], tests_see: SUITES },
    Row { of: "aether-residency", sees: &["aether-core"], tests_see: SUITES },
    Row { of: "aether-tests", sees: &[], tests_see: &["aether", "aether-conformance", "aether-core"] },
    Row { of: "xtask", sees: &[], tests_see: &[] },
];

/// What the facade gathers.
const LIBRARIES: &[&str] = &[
    "aether-collective",
    "aether-conformance",
    "aether-core",
    "aether-cuda",
    "aether-host",
    "aether-mpi",
    "aether-nccl",
    "aether-residency",
];

/// What a crate's tests may use on top of what the crate sees.
const SUITES: &[&str] = &["aether-conformance"];

/// What `cargo build` at the root leaves out, since it is no product.
const NOT_DEFAULT: &[&str] = &["aether-benches", "xtask"];

/// The one program of the default members, so that `cargo run` at the root runs it.
const PROGRAM: &str = "aether";

/// What every crate takes from the workspace, as cargo's metadata names it.
const INHERITED: &[&str] = &["edition", "license", "rust_version", "version"];

/// The crates that one crate may see.
struct Row {
    of: &'static str,
    /// As a normal or a build dependency.
    sees: &'static [&'static str],
    /// As a development dependency, beside the above.
    tests_see: &'static [&'static str],
}

/// Checks the workspace as it is.
pub(crate) fn run(workspace: &Workspace) -> Report {
    check(&workspace.metadata, ROWS).into()
}

/// A note of what was looked at, or every violation, one a line.
fn check(metadata: &Value, rows: &[Row]) -> Result<String, String> {
    let packages = list(&metadata["packages"]);
    let members: BTreeSet<_> = packages.iter().filter_map(|package| name(package)).collect();
    if members.is_empty() {
        return Err("cargo's metadata names no package".to_owned());
    }
    let mut wrong = Vec::new();
    let mut arrows = 0;
    for package in packages {
        let from = name(package).unwrap_or("a package without a name");
        let Some(row) = rows.iter().find(|row| row.of == from) else {
            wrong.push(format!("{from} has no row in the table of xtask/src/deps.rs"));
            continue;
        };
        for dependency in list(&package["dependencies"]) {
            let Some(to) = name(dependency).filter(|to| members.contains(to)) else { continue };
            arrows += 1;
            wrong.extend(forbidden(row, to, dependency["kind"].as_str()));
        }
    }
    wrong.extend(not_inherited(packages));
    wrong.extend(wrong_defaults(metadata, packages));
    if wrong.is_empty() {
        Ok(format!("{} between {}", count(arrows, "arrow"), count(members.len(), "crate")))
    } else {
        Err(wrong.join("\n"))
    }
}

/// Why the arrow from the crate of `row` to `to` may not be, if it may not. A normal dependency has no
/// kind; any kind but `dev` ends up in what users build.
fn forbidden(row: &Row, to: &str, kind: Option<&str>) -> Option<String> {
    let in_tests = kind == Some("dev");
    if row.sees.contains(&to) || in_tests && row.tests_see.contains(&to) {
        return None;
    }
    let from = row.of;
    let kind = kind.unwrap_or("normal");
    let allowed = if in_tests { [row.sees, row.tests_see].concat() } else { row.sees.to_vec() };
    let allowed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
    Some(format!("{from} -> {to} ({kind} dependency) is not allowed; allowed: {allowed}"))
}

/// The crates that say something else than xtask does where all inherit from the workspace.
fn not_inherited(packages: &[Value]) -> Vec<String> {
    let Some(model) = packages.iter().find(|package| name(package) == Some("xtask")) else {
        return vec!["xtask is no member of the workspace".to_owned()];
    };
    let mut wrong = Vec::new();
    for field in INHERITED {
        if model[field].is_null() {
            wrong.push(format!("xtask has no {field}"));
        }
        for package in packages.iter().filter(|package| package[field] != model[field]) {
            let (name, own) = (name(package).unwrap_or_default(), &package[field]);
            wrong.push(format!(
                "{name} has the {field} {own}, the workspace {}: inherit it",
                model[field]
            ));
        }
    }
    wrong
}

/// What is wrong with the set of default members, and with the programs in it.
fn wrong_defaults(metadata: &Value, packages: &[Value]) -> Vec<String> {
    let defaults = list(&metadata["workspace_default_members"]);
    let (defaults, others): (Vec<_>, Vec<_>) =
        packages.iter().partition(|package| defaults.contains(&package["id"]));
    let mut wrong = Vec::new();
    for name in defaults.iter().filter_map(|package| name(package)) {
        if NOT_DEFAULT.contains(&name) {
            wrong.push(format!("{name} is a default member, but no product"));
        }
    }
    for name in others.into_iter().filter_map(name) {
        if !NOT_DEFAULT.contains(&name) {
            wrong.push(format!("{name} is missing from the default members"));
        }
    }
    let targets = defaults.iter().flat_map(|package| list(&package["targets"]));
    let programs: Vec<_> = targets
        .filter(|target| list(&target["kind"]).contains(&"bin".into()))
        .filter_map(name)
        .collect();
    if programs != [PROGRAM] {
        wrong.push(format!(
            "the default members have the programs {programs:?}, and should have {PROGRAM} alone"
        ));
    }
    wrong
}

fn name(of: &Value) -> Option<&str> {
    of["name"].as_str()
}

fn list(of: &Value) -> &[Value] {
    of.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What a crate depends on, and as which kind of dependency.
    type Sees<'a> = &'a [(&'a str, Option<&'a str>)];

    /// A workspace of `crates` as cargo describes it.
    fn metadata(crates: &[(&str, Sees<'_>)]) -> Value {
        let programs = [("aether-cli", "aether"), ("xtask", "xtask")];
        let package = |&(name, sees): &(&str, Sees<'_>)| {
            let sees = sees.iter().map(|(to, kind)| json!({ "name": to, "kind": kind }));
            let bin = programs.iter().filter(|(of, _)| *of == name);
            let bin = bin.map(|(_, bin)| json!({ "name": bin, "kind": ["bin"] }));
            json!({
                "id": format!("path#{name}"), "name": name, "version": "0.1.0", "edition": "2024",
                "license": "MIT OR Apache-2.0", "rust_version": "1.88",
                "dependencies": sees.collect::<Vec<_>>(), "targets": bin.collect::<Vec<_>>(),
            })
        };
        let defaults =
            crates.iter().map(|(name, _)| name).filter(|name| !NOT_DEFAULT.contains(name));
        json!({
            "packages": crates.iter().map(package).collect::<Vec<_>>(),
            "workspace_default_members": defaults.map(|n| format!("path#{n}")).collect::<Vec<_>>(),
        })
    }

    /// A workspace as it should be, where `of` sees `to` as well.
    fn with_arrow(of: &str, to: &str, kind: Option<&str>) -> Value {
        let extra = |name: &str| if name == of { vec![(to, kind)] } else { vec![] };
        let normal = |names: &[&'static str]| names.iter().map(|name| (*name, None)).collect();
        let core: Vec<_> = normal(&["aether-core", "serde"]);
        let both: Vec<_> = normal(&["aether-collective", "aether-core"]);
        let crates = [
            ("aether", both.clone()),
            ("aether-cli", normal(&["aether", "clap"])),
            ("aether-collective", core.clone()),
            ("aether-core", normal(&["half"])),
            ("aether-host", [both.clone(), vec![("aether-conformance", Some("dev"))]].concat()),
            ("aether-conformance", [both, normal(&["aether-residency"])].concat()),
            ("aether-residency", core),
            ("xtask", normal(&["clap"])),
        ];
        let crates = crates.map(|(name, sees)| (name, [sees, extra(name)].concat()));
        metadata(&crates.each_ref().map(|(name, sees)| (*name, sees.as_slice())))
    }

    fn wrong_in(metadata: &Value) -> String {
        check(metadata, ROWS).unwrap_err()
    }

    #[test]
    fn the_arrows_of_the_design_pass_and_are_counted() {
        let note = check(&with_arrow("", "", None), ROWS).unwrap();
        assert_eq!(note, "11 arrows between 8 crates");
    }

    #[test]
    fn a_forbidden_arrow_is_named_with_its_kind() {
        for (from, to) in [
            ("aether-residency", "aether-collective"),
            ("aether-collective", "aether-residency"),
            ("aether-core", "aether-residency"),
            ("aether-host", "aether-residency"),
            ("aether-host", "aether-conformance"),
            ("aether-conformance", "aether-host"),
            ("aether-collective", "aether-host"),
            ("aether-cli", "aether-core"),
            ("xtask", "aether"),
        ] {
            for (kind, words) in [(None, "normal"), (Some("build"), "build")] {
                let wrong = wrong_in(&with_arrow(from, to, kind));
                let expected = format!("{from} -> {to} ({words} dependency) is not allowed");
                assert!(wrong.starts_with(&expected), "{wrong}");
                assert_eq!(wrong.lines().count(), 1, "{wrong}");
            }
        }
    }

    #[test]
    fn tests_may_use_the_suites_and_still_keep_residency_and_collective_apart() {
        for (from, to) in
            [("aether-core", "aether-conformance"), ("aether-collective", "aether-host")]
        {
            assert!(check(&with_arrow(from, to, Some("dev")), ROWS).is_ok(), "{from} -> {to}");
        }
        for (from, to) in [
            ("aether-residency", "aether-collective"),
            ("aether-collective", "aether-residency"),
            ("aether-residency", "aether-host"),
        ] {
            let wrong = wrong_in(&with_arrow(from, to, Some("dev")));
            assert!(wrong.contains(&format!("{from} -> {to} (dev dependency)")), "{wrong}");
        }
    }

    #[test]
    fn the_table_itself_leads_nowhere_that_the_design_forbids() {
        let row = |name: &str| ROWS.iter().find(|row| row.of == name).unwrap();
        let reached = |from: &'static str| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(of) = next.pop() {
                next.extend(row(of).sees.iter().copied().filter(|to| seen.insert(*to)));
            }
            seen
        };
        for row in ROWS {
            assert!(!reached(row.of).contains(row.of), "{} sees itself", row.of);
            assert!(
                row.of == "aether-core" || row.of == "xtask" || !row.tests_see.contains(&row.of)
            );
        }
        assert!(reached("aether-core").is_empty());
        assert!(!reached("aether-residency").contains("aether-collective"));
        assert!(!reached("aether-collective").contains("aether-residency"));
        for library in ["aether-conformance", "aether-collective", "aether-residency"] {
            for backend in ["aether-host", "aether-cuda", "aether-nccl", "aether-mpi"] {
                assert!(!reached(library).contains(backend), "{library} sees {backend}");
            }
        }
        assert!(ROWS.is_sorted_by_key(|row| row.of));
    }

    #[test]
    fn a_crate_without_a_row_is_named() {
        let mut metadata = with_arrow("", "", None);
        metadata["packages"][4]["name"] = "aether-rocm".into();
        assert!(wrong_in(&metadata).contains("aether-rocm has no row"));
    }

    #[test]
    fn what_is_not_inherited_is_named_with_both_values() {
        for (field, own) in [("rust_version", "1.95"), ("license", "GPL-3.0"), ("edition", "2021")]
        {
            let mut metadata = with_arrow("", "", None);
            metadata["packages"][3][field] = own.into();
            let wrong = wrong_in(&metadata);
            let expected = format!("aether-core has the {field} \"{own}\", the workspace \"");
            assert!(wrong.starts_with(&expected), "{wrong}");
        }
        let mut metadata = with_arrow("", "", None);
        for package in metadata["packages"].as_array_mut().unwrap() {
            package["rust_version"] = Value::Null;
        }
        assert_eq!(wrong_in(&metadata), "xtask has no rust_version");
    }

    #[test]
    fn default_members_are_the_products_with_one_program() {
        let mut metadata = with_arrow("", "", None);
        let members = metadata["workspace_default_members"].as_array_mut().unwrap();
        members.retain(|id| id != "path#aether-host");
        members.push("path#xtask".into());
        assert_eq!(
            wrong_in(&metadata).lines().collect::<Vec<_>>(),
            [
                "xtask is a default member, but no product",
                "aether-host is missing from the default members",
                "the default members have the programs [\"aether\", \"xtask\"], \
                 and should have aether alone",
            ]
        );
    }

    #[test]
    fn metadata_without_packages_is_an_error_and_no_pass() {
        assert_eq!(wrong_in(&json!({})), "cargo's metadata names no package");
    }
}
