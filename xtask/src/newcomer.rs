//! What a newcomer does: a new crate with the lines of the README and of the guide's first page,
//! each program built and run as it stands, twice, in an empty folder.
//!
//! The crate lies in the target folder and shares it, so that only the libraries of this workspace
//! are built once more. Pages whose programs make no files are documentation tests of their crates.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::steps::cargo;

/// The pages whose programs are run here.
const PAGES: &[&str] = &["README.md", "docs/guide/first-workflow.md"];
/// Where the pages say that this folder is.
const BESIDE: &str = "../roundel/";
/// No program on these pages takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Builds and runs what the pages show, and prints what happens; true when all of it works.
pub(crate) fn run(root: &Path) -> bool {
    match try_out(root, &target(root)) {
        Ok(()) => true,
        Err(error) => {
            println!("      {error}");
            false
        }
    }
}

/// Builds it, so that [`run`] has nothing left to build. Whether it could be is seen there.
pub(crate) fn build_ahead(root: &Path) {
    let _ = build(root, &target(root));
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from)
}

fn failed(folder: &Path) -> impl Fn(io::Error) -> String + Copy {
    move |error| format!("{} cannot be made: {error}", folder.display())
}

/// Gives the names of its programs.
fn build(root: &Path, target: &Path) -> Result<Vec<String>, String> {
    let folder = &target.join("newcomer");
    let failed = failed(folder);
    let pages = PAGES
        .iter()
        .map(|page| Ok((*page, fs::read_to_string(root.join(page))?)));
    let pages: Vec<_> = pages.collect::<io::Result<_>>().map_err(failed)?;
    let programs = make(root, folder, &pages).map_err(failed)?;
    let mut build = cargo(root, &["build", "--quiet"]);
    // Inside this folder Cargo finds the same settings as in the workspace.
    build.current_dir(folder).env("CARGO_TARGET_DIR", target);
    if !build.status().is_ok_and(|status| status.success()) {
        return Err("the pages do not compile".to_owned());
    }
    Ok(programs)
}

fn try_out(root: &Path, target: &Path) -> Result<(), String> {
    let folder = &target.join("newcomer");
    let failed = failed(folder);
    for program in build(root, target)? {
        let place = folder.join("run").join(&program);
        fs::create_dir_all(&place).map_err(failed)?;
        let binary = target.join("debug").join(&program);
        let first = run_once(&binary, &place)?;
        let second = run_once(&binary, &place)?;
        println!("      {program} says: {}", last_line(&first));
        if last_line(&first) != last_line(&second) {
            let second = last_line(&second);
            return Err(format!(
                "{program} says something else when run again: {second}"
            ));
        }
    }
    Ok(())
}

/// Writes the crate; gives the names of its programs.
fn make(root: &Path, folder: &Path, pages: &[(&str, String)]) -> io::Result<Vec<String>> {
    for old in ["run", "src"] {
        match fs::remove_dir_all(folder.join(old)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let sources = folder.join("src/bin");
    fs::create_dir_all(&sources)?;
    let (mut programs, mut dependencies) = (Vec::new(), BTreeSet::new());
    for (page, text) in pages {
        let name = page.rsplit('/').next().unwrap_or(page).to_lowercase();
        let name = format!("newcomer-{}", name.trim_end_matches(".md"));
        for (index, block) in blocks(text, "rust").into_iter().enumerate() {
            let name = format!("{name}-{}", index + 1);
            fs::write(sources.join(format!("{name}.rs")), block)?;
            programs.push(name);
        }
        for block in blocks(text, "toml") {
            let lines = block.lines().filter(|line| !line.starts_with('['));
            dependencies.extend(lines.map(str::to_owned));
        }
    }
    let manifest = manifest(&fs::read_to_string(root.join("Cargo.toml"))?, &dependencies);
    let here = format!("{}/", root.display());
    fs::write(folder.join("Cargo.toml"), manifest.replace(BESIDE, &here))?;
    // The same versions as here, so that what was built can be used.
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    Ok(programs)
}

/// A crate of its own, not a part of this workspace, built with the same profile.
fn manifest(workspace: &str, dependencies: &BTreeSet<String>) -> String {
    let dependencies: Vec<&str> = dependencies.iter().map(String::as_str).collect();
    let profile = workspace.find("[profile.dev]").unwrap_or(workspace.len());
    format!(
        "[package]\nname = \"newcomer\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\n{}\n\n{}",
        dependencies.join("\n"),
        &workspace[profile..]
    )
}

/// The fenced blocks of this language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<Option<String>> = None;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => open = Some((info == language).then(String::new)),
            (Some(_), Some("")) => found.extend(open.take().flatten()),
            (Some(Some(block)), _) => {
                block.push_str(line);
                block.push('\n');
            }
            _ => {}
        }
    }
    found
}

/// Runs a program in this folder to its end; gives what it said.
fn run_once(binary: &Path, folder: &Path) -> Result<String, String> {
    let failed = |error: io::Error| format!("{} cannot be run: {error}", binary.display());
    let mut command = Command::new(binary);
    command.current_dir(folder).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let begun = Instant::now();
    while child.try_wait().map_err(failed)?.is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().map_err(failed)?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().map_err(failed)?;
    let said = String::from_utf8_lossy(&stdout).into_owned();
    if status.success() {
        return Ok(said);
    }
    let errors = String::from_utf8_lossy(&stderr);
    Err(format!(
        "{} ended with {status}:\n{said}{errors}",
        binary.display()
    ))
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_by_their_language() {
        let page = "a\n```rust\nx\ny\n```\n```text\n```\n```toml\nz\n```\n```rust\n```\n";
        assert_eq!(blocks(page, "rust"), ["x\ny\n", ""]);
        assert_eq!(blocks(page, "toml"), ["z\n"]);
    }

    #[test]
    fn every_page_with_programs_is_run_here_or_as_a_documentation_test() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let libraries = ["roundel", "server"].map(|name| {
            let library = root.join("crates").join(name).join("src/lib.rs");
            fs::read_to_string(library).unwrap()
        });
        for entry in fs::read_dir(root.join("docs/guide")).unwrap() {
            let page = entry.unwrap().path();
            if page.extension().is_none_or(|kind| kind != "md") {
                continue;
            }
            let page = format!("docs/guide/{}", page.file_name().unwrap().display());
            let included = format!("include_str!(\"../../../{page}\")");
            let tested = libraries
                .iter()
                .filter(|library| library.contains(&included));
            let times = tested.count() + usize::from(PAGES.contains(&page.as_str()));
            assert_eq!(times, 1, "{page} is run so many times");
        }
    }

    #[test]
    fn the_pages_name_the_folder_that_is_replaced() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for page in PAGES {
            let text = fs::read_to_string(root.join(page)).unwrap();
            let manifests = blocks(&text, "toml").concat();
            assert!(manifests.contains(BESIDE), "{page}: {manifests}");
            assert!(!blocks(&text, "rust").is_empty(), "{page}");
        }
    }
}
