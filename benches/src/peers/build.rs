//! Builds the peers' programs out of `benches/peers/`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Library;
use crate::failure::{Failure, Result};

/// Where the sources lie.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// The C program, by the compiler of one MPI library.
pub(super) fn mpi(
    library: Library,
    compiler: &str,
    directory: &Path,
) -> Result<Result<PathBuf, String>> {
    let name = library.name();
    let program = directory.join(compiler.replace("mpicc.", "peer-"));
    let mut command = Command::new(compiler);
    command.arg("-O2").arg(sources().join("mpi.c")).arg("-o").arg(&program);
    Ok(match run(&mut command)? {
        true => Ok(program),
        false => Err(format!("{name}: there is no {compiler}")),
    })
}

/// The cargo project of burn-collective.
pub(super) fn burn(directory: &Path) -> Result<Result<PathBuf, String>> {
    let target = directory.join("burn");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--release", "--locked", "--manifest-path"]);
    command.arg(sources().join("burn/Cargo.toml")).arg("--target-dir").arg(&target);
    Ok(match run(&mut command)? {
        true => Ok(target.join("release/peer-burn")),
        false => Err(format!("{}: there is no cargo", Library::Burn.name())),
    })
}

/// The program `aether`, in the directory of this one and by the same profile.
pub(super) fn aether() -> Result<Result<PathBuf, String>> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::new(format!("find this program: {error}")))?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--quiet", "--release", "--locked", "--package", "aether-cli"]);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    Ok(match run(&mut command)? {
        true => Ok(own.with_file_name("aether")),
        false => Err("aether processes: there is no cargo".to_owned()),
    })
}

/// Whether the compiler is there.
fn run(command: &mut Command) -> Result<bool> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(true),
        Ok(status) => {
            Err(Failure::new(format!("build a peer by {program}: it ended with {status}")))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Failure::new(format!("build a peer by {program}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_that_is_not_there_is_told_in_words_and_no_failure() {
        let directory = std::env::temp_dir();
        let built = mpi(Library::Mpich, "mpicc.nobody-has-this", &directory).unwrap();
        assert_eq!(built.unwrap_err(), "MPICH: there is no mpicc.nobody-has-this");
    }

    #[test]
    fn a_compiler_that_fails_is_a_failure() {
        let why = mpi(Library::Mpich, "false", &std::env::temp_dir()).unwrap_err().to_string();
        assert!(why.starts_with("build a peer by false: it ended with"), "{why}");
    }
}
