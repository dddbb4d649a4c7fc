//! Hands counts over to `cargo xtask test`, which shows them in docs/reference/reliability.md.

use std::fs::OpenOptions;
use std::io::Write;

/// Adds a line to the file that `ROUNDEL_FIGURES` names, if any. Lines of one level are summed up.
pub(crate) fn hand_over(level: &str, figures: &[(&str, u64)]) {
    let Some(file) = std::env::var_os("ROUNDEL_FIGURES") else {
        return;
    };
    let figures: serde_json::Map<_, _> = figures
        .iter()
        .map(|(name, count)| ((*name).to_owned(), (*count).into()))
        .collect();
    let line = serde_json::json!({ "level": level, "figures": figures });
    let file = OpenOptions::new().create(true).append(true).open(file);
    // In one write, so that lines of several programs do not mix.
    let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    written.expect("figures can be handed over");
}
