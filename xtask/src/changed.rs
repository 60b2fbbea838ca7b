//! `cargo xtask test --changed`: the packages that differ from `main`, and all that depend on them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo::{self, Package};

/// The names of the packages to test: those with a file that differs from where this branch left
/// `main`, committed or not, and all that depend on them.
pub(crate) fn packages(all: &[Package]) -> Result<BTreeSet<String>> {
    let base = merge_base()?;
    let differing = git(&["diff", "--name-only", &base])?;
    let untracked = git(&["ls-files", "--others", "--exclude-standard"])?;
    let files: Vec<&str> = differing.lines().chain(untracked.lines()).collect();
    Ok(affected(&files, all, &cargo::root(), mentions))
}

fn merge_base() -> Result<String> {
    for main in ["main", "origin/main"] {
        if let Ok(base) = git(&["merge-base", main, "HEAD"]) {
            return Ok(base.trim().to_owned());
        }
    }
    bail!("--changed compares with the branch `main`, and git knows none")
}

fn git(args: &[&str]) -> Result<String> {
    let output = Command::new("git").args(args).current_dir(cargo::root()).output();
    let output = output.context("cannot start git")?;
    if !output.status.success() {
        bail!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The packages that `files`, relative to `root`, can make fail.
///
/// A file outside of all packages counts for every one of them, for it may be a lock file or a
/// setting of clippy. Prose counts for those whose code mentions it, since they may include it.
fn affected(
    files: &[&str],
    packages: &[Package],
    root: &Path,
    mentions: impl Fn(&Package, &str) -> bool,
) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for file in files {
        let path = root.join(file);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some(owner) = packages.iter().find(|package| path.starts_with(&package.dir)) {
            names.insert(owner.name.clone());
        } else {
            let hit = |package: &&Package| !file.ends_with(".md") || mentions(package, &name);
            names.extend(packages.iter().filter(hit).map(|package| package.name.clone()));
        }
    }
    loop {
        let is_next = |package: &&Package| {
            !names.contains(&package.name) && package.needs.iter().any(|need| names.contains(need))
        };
        let Some(next) = packages.iter().find(is_next) else { return names };
        names.insert(next.name.clone());
    }
}

/// Whether a Rust file of `package` speaks of a file by its name.
fn mentions(package: &Package, file: &str) -> bool {
    any_rust_file(&package.dir, &|text| text.contains(file))
}

fn any_rust_file(dir: &Path, holds: &dyn Fn(&str) -> bool) -> bool {
    fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return path.file_name().is_some_and(|name| name != "target")
                && any_rust_file(&path, holds);
        }
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        is_rust && fs::read_to_string(&path).is_ok_and(|text| holds(&text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cli` needs `facade`, which needs `core`; `store` needs `core`; nothing needs `tool`.
    fn packages() -> Vec<Package> {
        let package = |name: &str, dir: &str, needs: &[&str]| Package {
            name: name.to_owned(),
            dir: Path::new("/w").join(dir),
            needs: needs.iter().map(|need| (*need).to_owned()).collect(),
        };
        vec![
            package("cli", "crates/cli", &["facade", "store", "serde"]),
            package("facade", "crates/facade", &["core"]),
            package("store", "crates/store", &["core"]),
            package("core", "crates/core", &[]),
            package("core-more", "crates/core-more", &[]),
            package("tool", "tool", &["serde"]),
        ]
    }

    fn of(files: &[&str]) -> Vec<String> {
        let mentions =
            |package: &Package, file: &str| package.name == "store" && file == "guide.md";
        affected(files, &packages(), Path::new("/w"), mentions).into_iter().collect()
    }

    #[test]
    fn a_file_counts_for_its_package_and_all_that_depend_on_it() {
        assert_eq!(of(&["crates/cli/src/main.rs"]), ["cli"]);
        assert_eq!(of(&["crates/store/tests/all/x.rs"]), ["cli", "store"]);
        assert_eq!(of(&["crates/core/src/lib.rs"]), ["cli", "core", "facade", "store"]);
        assert_eq!(of(&["tool/README.md", "crates/core-more/x"]), ["core-more", "tool"]);
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn a_file_of_no_package_counts_for_all_of_them() {
        for file in ["Cargo.lock", "clippy.toml", ".cargo/config.toml", "deploy/x.yaml"] {
            assert_eq!(of(&[file]).len(), packages().len(), "{file}");
        }
    }

    #[test]
    fn prose_counts_for_those_that_mention_it() {
        assert!(of(&["CHANGELOG.md", "docs/found.md"]).is_empty());
        assert_eq!(of(&["docs/guide.md"]), ["cli", "store"]);
    }

    #[test]
    fn the_packages_of_this_workspace_know_what_they_need() {
        let all = cargo::members().unwrap();
        let of = |name: &str| all.iter().find(|package| package.name == name).unwrap();
        assert!(of("tenure-cli").needs.contains(&"tenure-core".to_owned()));
        assert!(of("tenure-core").dir.ends_with("crates/tenure-core"));
    }
}
