//! What others wrote: which packages there are, under which licences, from where; and the list of
//! those that are in the program, for whoever has to know (an SBOM).
//!
//! All of it is read from the lock file and from what Cargo knows; nothing is fetched. Advisories
//! that were published since are for a tool that can look them up; those that this project's
//! packages have met before are kept here as lowest versions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// Licences that anybody may use this project under its own with.
const LICENCES: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Never, and why.
const BANNED: &[(&str, &str)] = &[
    (
        "openssl",
        "TLS is rustls, which needs no library of the system",
    ),
    (
        "openssl-sys",
        "TLS is rustls, which needs no library of the system",
    ),
    (
        "native-tls",
        "TLS is rustls, which needs no library of the system",
    ),
    ("chrono", "time is `Timestamp`, and calendars are jiff"),
    ("lazy_static", "the standard library has `LazyLock`"),
];

/// Not older than this, and why.
const FLOORS: &[(&str, [u64; 3], &str)] = &[
    ("h2", [0, 4, 20], "RUSTSEC-2026-0258"),
    ("rustls", [0, 23, 18], "RUSTSEC-2024-0399"),
    ("sqlx", [0, 8, 1], "RUSTSEC-2024-0363"),
    ("time", [0, 3, 47], "RUSTSEC-2026-0009"),
    ("tokio-postgres", [0, 7, 18], "RUSTSEC-2026-0178"),
    ("tracing-subscriber", [0, 3, 20], "RUSTSEC-2025-0055"),
];

/// In two versions, because others want them so. It may shrink.
const TWICE: &[&str] = &[
    "bitflags",
    "cpufeatures",
    "foldhash",
    "getrandom",
    "hashbrown",
    "hashlink",
    "rand",
    "rand_core",
    "redox_syscall",
    "syn",
    "webpki-roots",
];

/// Checksums, by name and version.
type Sums = BTreeMap<(String, String), String>;

/// The package whose program is listed.
const PROGRAM: &str = "roundel-cli";

/// Checks the packages and prints what is wrong with them; true when nothing is.
pub(crate) fn deny(root: &Path) -> bool {
    let (metadata, lock) = match read(root) {
        Ok(read) => read,
        Err(error) => {
            println!("      {error}");
            return false;
        }
    };
    let findings = findings(&metadata, &lock);
    for finding in &findings {
        println!("{finding}");
    }
    let count = list(&metadata["packages"]).len();
    println!("      {count} packages, findings: {}", findings.len());
    findings.is_empty()
}

/// Prints the list of what is in the program, in CycloneDX's form; true if it could be made.
pub(crate) fn sbom(root: &Path) -> bool {
    match read(root) {
        Ok((metadata, lock)) => {
            println!("{:#}", bill(&metadata, &lock));
            true
        }
        Err(error) => {
            eprintln!("error: {error}");
            false
        }
    }
}

/// What Cargo knows, and the checksums of the lock file.
fn read(root: &Path) -> Result<(Value, Sums), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["metadata", "--format-version", "1", "--locked"])
        .output()
        .map_err(|error| format!("cargo metadata could not be run: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!(
            "cargo metadata failed; is Cargo.lock committed? {said}"
        ));
    }
    let metadata = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock"))
        .map_err(|error| format!("Cargo.lock cannot be read: {error}"))?;
    Ok((metadata, checksums(&lock)))
}

/// By name and version.
fn checksums(lock: &str) -> Sums {
    let value = |line: &str, key: &str| {
        let rest = line.strip_prefix(key)?.strip_prefix(" = \"")?;
        Some(rest.strip_suffix('"')?.to_owned())
    };
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let of = |key| package.lines().find_map(|line| value(line, key));
        if let (Some(name), Some(version), Some(sum)) = (of("name"), of("version"), of("checksum"))
        {
            found.insert((name, version), sum);
        }
    }
    found
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

fn findings(metadata: &Value, lock: &Sums) -> Vec<String> {
    let mut found = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in list(&metadata["packages"]) {
        let (name, version) = (text(package, "name"), text(package, "version"));
        versions.entry(name).or_default().insert(version);
        let own = package["source"].is_null();
        if !own && !text(package, "source").starts_with("registry+") {
            found.push(format!(
                "{name} {version}: not from the registry; its code can change"
            ));
        }
        if !own && !lock.contains_key(&(name.to_owned(), version.to_owned())) {
            found.push(format!(
                "{name} {version}: Cargo.lock has no checksum of it"
            ));
        }
        let licence = text(package, "license");
        if !allows(licence) {
            found.push(format!(
                "{name} {version}: its licence is not on the list: `{licence}`"
            ));
        }
        if let Some((_, why)) = BANNED.iter().find(|(banned, _)| *banned == name) {
            found.push(format!("{name} {version}: not here: {why}"));
        }
        let floor = FLOORS.iter().find(|(known, ..)| *known == name);
        if let Some((_, lowest, why)) = floor.filter(|(_, lowest, _)| number(version) < *lowest) {
            let [major, minor, patch] = lowest;
            found.push(format!(
                "{name} {version}: at least {major}.{minor}.{patch}: {why}"
            ));
        }
    }
    // Of other systems there are many, and nobody here chooses them.
    versions.retain(|name, _| !name.starts_with("windows"));
    for (name, versions) in &versions {
        if versions.len() > 1 && !TWICE.contains(name) {
            let all: Vec<&str> = versions.iter().copied().collect();
            found.push(format!(
                "{name}: in {} versions, {}",
                all.len(),
                all.join(", ")
            ));
        }
    }
    for name in TWICE {
        if versions.get(name).is_none_or(|versions| versions.len() < 2) {
            found.push(format!(
                "{name}: no longer in two versions; take it off the list"
            ));
        }
    }
    found
}

fn number(version: &str) -> [u64; 3] {
    let plain = version.split(['-', '+']).next().unwrap_or_default();
    let mut parts = plain.split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

/// May it be used under licences of the list? `AND` binds closer than `OR`.
fn allows(expression: &str) -> bool {
    let expression = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = expression.split_whitespace().collect();
    let mut at = 0;
    !words.is_empty() && either(&words, &mut at) && at == words.len()
}

fn either(words: &[&str], at: &mut usize) -> bool {
    let mut allowed = both(words, at);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        allowed |= both(words, at);
    }
    allowed
}

fn both(words: &[&str], at: &mut usize) -> bool {
    let mut allowed = one(words, at);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        allowed &= one(words, at);
    }
    allowed
}

fn one(words: &[&str], at: &mut usize) -> bool {
    let Some(word) = words.get(*at) else {
        return false;
    };
    *at += 1;
    if *word == "(" {
        let allowed = either(words, at);
        *at += 1;
        return allowed;
    }
    let mut licence = (*word).to_owned();
    if words.get(*at) == Some(&"WITH") {
        licence = format!("{licence} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    LICENCES.contains(&licence.as_str())
}

/// What the program is made of: without what only tests need.
fn bill(metadata: &Value, lock: &Sums) -> Value {
    let packages: BTreeMap<&str, &Value> = list(&metadata["packages"])
        .iter()
        .map(|package| (text(package, "id"), package))
        .collect();
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| (text(node, "id"), node))
        .collect();
    let below = |id: &str| -> Vec<&str> {
        let shipped = |dep: &&Value| {
            let mut kinds = list(&dep["dep_kinds"]).iter();
            kinds.any(|kind| text(kind, "kind") != "dev")
        };
        let deps = nodes.get(id).map_or(&[][..], |node| list(&node["deps"]));
        deps.iter()
            .filter(shipped)
            .map(|dep| text(dep, "pkg"))
            .collect()
    };
    let program = packages
        .values()
        .find(|package| text(package, "name") == PROGRAM);
    let Some(program) = program else {
        return Value::Null;
    };
    let mut reached = BTreeSet::new();
    let mut open = vec![text(program, "id")];
    while let Some(id) = open.pop() {
        if reached.insert(id) {
            open.extend(below(id));
        }
    }
    let name_of = |id: &str| {
        packages
            .get(id)
            .map_or(String::new(), |package| purl(package))
    };
    let parts = reached.iter().filter(|id| **id != text(program, "id"));
    let parts = parts.filter_map(|id| packages.get(id));
    let links = reached.iter().map(|id| {
        let below: BTreeSet<String> = below(id).into_iter().map(name_of).collect();
        json!({"ref": name_of(id), "dependsOn": below})
    });
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(program, lock, "application")},
        "components": parts.map(|part| component(part, lock, "library")).collect::<Vec<_>>(),
        "dependencies": links.collect::<Vec<_>>(),
    })
}

fn purl(package: &Value) -> String {
    format!(
        "pkg:cargo/{}@{}",
        text(package, "name"),
        text(package, "version")
    )
}

fn component(package: &Value, lock: &Sums, kind: &str) -> Value {
    let (name, version) = (text(package, "name"), text(package, "version"));
    let mut value = json!({
        "type": kind,
        "bom-ref": purl(package),
        "name": name,
        "version": version,
        "purl": purl(package),
        "licenses": [{"expression": text(package, "license").replace('/', " OR ")}],
    });
    if let Some(sum) = lock.get(&(name.to_owned(), version.to_owned())) {
        value["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str, licence: &str) -> Value {
        json!({
            "id": format!("{name}@{version}"),
            "name": name,
            "version": version,
            "license": licence,
            "source": "registry+somewhere",
        })
    }

    /// What the list expects to be there twice, and these.
    fn with(more: &[Value]) -> (Value, Sums) {
        let twice = TWICE.iter().flat_map(|name| {
            let of = |version| package(name, version, "MIT");
            [of("1.0.0"), of("2.0.0")]
        });
        let packages: Vec<Value> = twice.chain(more.iter().cloned()).collect();
        let lock = packages.iter().map(|package| {
            let key = (
                text(package, "name").into(),
                text(package, "version").into(),
            );
            (key, "00".to_owned())
        });
        (json!({"packages": packages}), lock.collect())
    }

    #[test]
    fn p9_what_may_not_be_in_the_tree_is_found() {
        let (metadata, lock) = with(&[package("fine", "1.0.0", "MIT OR Apache-2.0")]);
        assert_eq!(findings(&metadata, &lock), [""; 0]);
        let mut git = package("fork", "1.0.0", "MIT");
        git["source"] = json!("git+elsewhere");
        for (bad, expected) in [
            (package("openssl-sys", "0.9.0", "MIT"), "rustls"),
            (package("left", "1.0.0", "GPL-3.0-only"), "GPL-3.0-only"),
            (package("none", "1.0.0", ""), "licence"),
            (git, "not from the registry"),
            (package("sqlx", "0.8.0", "MIT"), "at least 0.8.1"),
            (package("bitflags", "3.0.0", "MIT"), ""),
        ] {
            let (metadata, lock) = with(&[bad]);
            let found = findings(&metadata, &lock);
            assert_eq!(found.len(), usize::from(!expected.is_empty()), "{found:?}");
            assert!(
                found.iter().all(|found| found.contains(expected)),
                "{found:?}"
            );
        }
        let (metadata, lock) = with(&[package("a", "1.0.0", "MIT"), package("a", "2.0.0", "MIT")]);
        assert_eq!(
            findings(&metadata, &lock),
            ["a: in 2 versions, 1.0.0, 2.0.0"]
        );
        let (metadata, mut lock) = with(&[package("a", "1.0.0", "MIT")]);
        lock.remove(&("a".into(), "1.0.0".into()));
        assert_eq!(findings(&metadata, &lock).len(), 1, "no checksum");
    }

    #[test]
    fn licences_are_read_as_their_expressions_mean() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0-only OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
        ] {
            assert!(allows(good), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "(MIT",
            "MIT MIT",
            "AND",
        ] {
            assert!(!allows(bad), "{bad}");
        }
    }

    #[test]
    fn p9_this_tree_is_clean_and_its_bill_names_what_is_shipped() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let (metadata, lock) = read(&root).expect("what Cargo knows");
        assert_eq!(findings(&metadata, &lock), [""; 0]);
        let bill = bill(&metadata, &lock);
        let named = |name: &str| {
            let parts = list(&bill["components"]).iter();
            parts.filter(|part| text(part, "name") == name).count()
        };
        assert_eq!((named("rusqlite"), named("roundel-core")), (1, 1));
        assert_eq!(
            (named("proptest"), named("xtask")),
            (0, 0),
            "tests are not shipped"
        );
        let sum = |part: &Value| list(&part["hashes"]).len() == 1 || part["name"] == PROGRAM;
        let foreign = |part: &&Value| !text(part, "name").starts_with("roundel");
        assert!(list(&bill["components"]).iter().filter(foreign).all(sum));
        let refs: BTreeSet<&str> = list(&bill["components"])
            .iter()
            .chain([&bill["metadata"]["component"]])
            .map(|part| text(part, "bom-ref"))
            .collect();
        for link in list(&bill["dependencies"]) {
            assert!(refs.contains(text(link, "ref")));
            for below in list(&link["dependsOn"]) {
                assert!(refs.contains(below.as_str().unwrap_or_default()), "{below}");
            }
        }
    }
}
