//! `runs undo` on a server: first what would be undone, as the API tells; then the request, if
//! whoever is there agrees.

use clap::ArgMatches;
use serde_json::Value;

use super::http::{Request, Server};
use super::table::{Row, Shown};
use super::{Remote, names, show};
use crate::exit::Result;
use crate::many::{agreed, counted};
use crate::show::Output;

/// How each is shown.
const UNDOS: Shown = Shown::List(&["workflow", "name", "run"]);

/// Shall it be done? A preview is shown, and is no.
pub(super) async fn is_meant(
    server: &Server,
    remote: &Remote,
    row: &Row,
    leaf: &ArgMatches,
    output: &Output,
) -> Result<bool> {
    if leaf.get_flag("yes") {
        return Ok(true);
    }
    let look = Row {
        method: "GET",
        args: &row.args[..1],
        ..*row
    };
    let request: Request = remote.request(&look, leaf, &names(row, leaf).concat())?;
    let found = server.ask(request).await?;
    let undos = found["undos"].as_array().map_or(&[][..], Vec::as_slice);
    if !leaf.get_flag("preview") {
        return agreed(&format!("undo {}?", sum(undos, &found)));
    }
    let mut screen = output.screen();
    match output.json {
        true => screen.json(&found),
        false => {
            show::list(output, &mut screen, UNDOS, undos);
            screen.line(&format!("would undo {}", sum(undos, &found)));
        }
    }
    screen.flush()?;
    Ok(false)
}

/// How much would be undone.
fn sum(undos: &[Value], found: &Value) -> String {
    let more = if found["more"] == true {
        "more than "
    } else {
        ""
    };
    format!("{more}{}", counted(undos.len(), "call"))
}
