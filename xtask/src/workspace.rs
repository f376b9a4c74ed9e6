//! Where the workspace lies, and what cargo knows about it.

use std::{
    env,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::command::Command;

/// The workspace as `cargo metadata` describes it, without what it depends on elsewhere.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) metadata: Value,
}

impl Workspace {
    /// Asks cargo, starting from where this package lies and not from the current directory.
    pub(crate) fn load() -> Result<Self, String> {
        // Cargo sets the variable for `cargo run`; the value at build time serves the program that is
        // started by its path.
        let package = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = package
            .parent()
            .map(Path::to_path_buf)
            .ok_or_else(|| format!("{} has no parent directory", package.display()))?;
        let ask = Command::cargo("metadata --format-version 1 --no-deps --locked", &root);
        let metadata: Value = serde_json::from_str(&ask.output()?)
            .map_err(|error| format!("`{ask}` printed no JSON: {error}"))?;
        let target = metadata["target_directory"]
            .as_str()
            .ok_or_else(|| format!("`{ask}` names no target_directory"))?
            .into();
        Ok(Self { root, target, metadata })
    }

    /// A command of the workspace's own toolchain, arguments separated by blanks.
    pub(crate) fn cargo(&self, arguments: &str) -> Command {
        Command::cargo(arguments, &self.root)
    }

    /// A target directory inside the workspace's own, for builds that share nothing with it. Relative
    /// to the root, where all commands run, if it lies below it.
    pub(crate) fn target_for(&self, chore: &str) -> String {
        let directory = self.target.join(chore);
        directory.strip_prefix(&self.root).unwrap_or(&directory).display().to_string()
    }
}
