//! The reference says what there is: every command, flag, exit code and promise.

use roundel::Invariant;
use roundel_cli::Exit;

use crate::support::{Place, said};

const REFERENCE: &str = include_str!("../../../../docs/reference/cli.md");

const COMMANDS: [&[&str]; 84] = [
    &[],
    &["runs", "list"],
    &["runs", "show"],
    &["runs", "tree"],
    &["runs", "why"],
    &["runs", "cancel"],
    &["runs", "undo"],
    &["runs", "accept"],
    &["runs", "complete"],
    &["runs", "resume"],
    &["runs", "patch"],
    &["runs", "delete"],
    &["start"],
    &["signal"],
    &["offer"],
    &["topics"],
    &["topics", "show"],
    &["topics", "subscribe"],
    &["topics", "unsubscribe"],
    &["publish"],
    &["commands", "send"],
    &["commands", "show"],
    &["commands", "list"],
    &["batches", "list"],
    &["batches", "show"],
    &["queues"],
    &["queues", "set"],
    &["queues", "pause"],
    &["queues", "resume"],
    &["schedules", "list"],
    &["schedules", "show"],
    &["schedules", "add"],
    &["schedules", "pause"],
    &["schedules", "resume"],
    &["schedules", "run"],
    &["schedules", "backfill"],
    &["schedules", "next"],
    &["schedules", "remove"],
    &["parked", "list"],
    &["parked", "count"],
    &["parked", "groups"],
    &["parked", "show"],
    &["parked", "retry"],
    &["parked", "cancel"],
    &["parked", "complete"],
    &["parked", "undo"],
    &["parked", "accept"],
    &["parked", "replay"],
    &["parked", "offer"],
    &["parked", "discard"],
    &["facts", "list"],
    &["facts", "show"],
    &["facts", "append"],
    &["facts", "incoming"],
    &["documents", "list"],
    &["documents", "get"],
    &["projections", "list"],
    &["projections", "rebuild"],
    &["projections", "skip"],
    &["tick"],
    &["audit"],
    &["audit", "verify"],
    &["sql"],
    &["top"],
    &["retention", "show"],
    &["retention", "set"],
    &["retention", "run"],
    &["backup"],
    &["restore"],
    &["doctor"],
    &["man"],
    &["serve"],
    &["tokens", "add"],
    &["tokens", "list"],
    &["tokens", "revoke"],
    &["keys", "new"],
    &["keys", "add"],
    &["keys", "use"],
    &["keys", "list"],
    &["verify"],
    &["check"],
    &["migrate"],
    &["confine"],
    &["move"],
];

#[test]
fn every_command_and_flag_is_in_the_reference() {
    let place = Place::empty();
    for command in COMMANDS {
        let help = said(&mut place.command(&[command, &["--help"]].concat()))
            .ok()
            .out;
        assert!(REFERENCE.contains(&command.join(" ")), "{command:?}");
        let words = help.split(|c: char| c.is_whitespace() || c == ',');
        let flags = words.filter(|word| word.starts_with("--") && word.len() > 2);
        for flag in flags.filter(|flag| !["--help", "--version"].contains(flag)) {
            assert!(REFERENCE.contains(flag), "{flag} of {command:?}");
        }
    }
    let help = said(&mut place.command(&["help"])).ok().out;
    let listed = help
        .split("Commands:")
        .nth(1)
        .and_then(|rest| rest.split("Options:").next());
    let lines = listed.expect("a list").lines();
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    for name in names.filter(|name| !name.is_empty() && *name != "help") {
        assert!(REFERENCE.contains(&format!("`{name}")), "{name}");
    }
}

#[test]
fn every_command_is_said_to_be_for_a_server_too_or_for_a_database_only() {
    let section = REFERENCE.split("\n## On a server\n").nth(1);
    let section = section.and_then(|rest| rest.split("\n## ").next());
    let section = section.expect("a section");
    let (there, only) = section.split_once("| a database only |").expect("a row");
    // By its words, or by its last word after the first of them: `runs`: `list`, `show`.
    let named = |text: &str, command: &[&str]| {
        let whole = format!("`{}`", command.join(" "));
        text.split([';', '|']).any(|part| {
            let mut words = part.split('`').skip(1).step_by(2);
            let of_group = words.next() == Some(command[0]) && command.len() > 1;
            part.trim().starts_with(&whole)
                || (of_group && words.any(|word| word == command[command.len() - 1]))
        })
    };
    let served = roundel_cli::on_servers();
    for command in COMMANDS.iter().filter(|command| !command.is_empty()) {
        let text = command.join(" ");
        let (by, other) = match served.contains(&text.as_str()) {
            true => (there, only),
            false => (only, there),
        };
        assert!(named(by, command), "`{text}` is not named where it belongs");
        assert!(
            !named(other, command),
            "`{text}` is named where it does not belong"
        );
    }
}

#[test]
fn every_exit_code_and_promise_is_in_the_reference() {
    for line in Exit::HELP.lines().skip(1) {
        let (code, meaning) = line
            .trim()
            .split_once("  ")
            .expect("a code and its meaning");
        assert!(
            REFERENCE.contains(&format!("| {code} | {meaning} |")),
            "{line}"
        );
    }
    for invariant in Invariant::ALL {
        assert!(
            REFERENCE.contains(&format!("| `{invariant}` |")),
            "{invariant}"
        );
    }
}
