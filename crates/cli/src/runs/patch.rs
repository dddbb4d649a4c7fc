//! `runs patch`: what people know better than a run's state does.

use clap::Args;
use roundel::{Client, Patched};
use serde_json::json;

use crate::exit::{Exit, Failed, Result};
use crate::payload;
use crate::show::{Output, clean, cut};
use crate::signed::Signed;
use crate::which::{Which, unknown};

/// Characters of the state that are shown.
const SHOWN: usize = 200;

#[derive(Args, Debug)]
pub struct Patch {
    #[command(flatten)]
    which: Which,
    /// What to merge into it (RFC 7396: null removes). JSON, @file, or - for standard input.
    patch: String,
    /// Only if the state has this version, which `runs show` says; 0 if it has none yet.
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    pub(crate) output: Output,
}

pub(crate) async fn run(args: &Patch, client: &Client) -> Result<Exit> {
    let client = &args.signed.client(client)?;
    let patch = payload::read(&args.patch)?;
    let patched = client.patch_state(args.which.to(), &patch, args.if_version);
    let run = args.which.text();
    let state = match patched.await? {
        Patched::Changed(state) => state,
        Patched::VersionIs(version) => {
            let expected = args.if_version.unwrap_or_default();
            let message = format!(
                "the state of run `{run}` was not patched: it has version {version}, not \
                 {expected}; somebody else changed it: look at it with `runs show {run}`, and \
                 patch that version"
            );
            return Err(Failed::new(Exit::No, message));
        }
        Patched::TargetEnded(state) => {
            let state = state.as_str();
            let message = format!(
                "the state of run `{run}` was not patched: the run has ended ({state}), and what \
                 it ended with stays; the patch is kept in the audit"
            );
            return Err(Failed::new(Exit::No, message));
        }
        Patched::TargetUnknown => return Err(unknown(run, client)),
    };
    let mut screen = args.output.screen();
    if args.output.json {
        screen.json(&json!({ "version": state.version, "state": state.value }));
    } else {
        let shown = cut(&clean(state.value.as_str()), SHOWN);
        screen.line(&format!("version {}: {shown}", state.version));
    }
    screen.flush()?;
    Ok(Exit::Done)
}
