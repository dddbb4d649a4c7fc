//! `serve`: the HTTP API and the dashboard, over the database.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use roundel::Client;
use roundel_server::{Server, Tokens};
use serde_json::json;

use crate::exit::{Exit, Failed, Result};
use crate::show::Output;

/// Serve the API and the dashboard over HTTP.
#[derive(Args, Debug)]
pub struct Serve {
    /// Where. An address that others can reach needs tokens first.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8462")]
    listen: SocketAddr,
    /// The file of tokens; `tokens add` makes it.
    #[arg(long, value_name = "FILE", default_value = "roundel-tokens.json")]
    tokens: PathBuf,
    /// It also goes by this name, beside localhost; may be said several times.
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Browsers reach it by TLS, through a proxy.
    #[arg(long)]
    behind_tls: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl Serve {
    pub(crate) async fn run(&self, client: &Client) -> Result<Exit> {
        let tokens = Tokens::at(&self.tokens);
        let tokens = tokens.map_err(|error| Failed::usage(error.to_string()))?;
        let mut server = Server::over(client.clone()).tokens(tokens);
        for name in &self.host {
            server = server.host(name.clone());
        }
        if self.behind_tls {
            server = server.behind_tls();
        }
        let server = server.build();
        let serving = server.serve(self.listen).await;
        let serving = serving.map_err(|error| Failed::usage(error.to_string()))?;
        let (at, code) = (serving.address(), server.login_code());
        let link = format!("http://{at}/login?code={}", code.reveal());
        let mut screen = self.output.screen();
        if self.output.json {
            screen.json(&json!({"address": at.to_string(), "login": link}));
        } else {
            screen.line(&format!("serving on http://{at}; to log in, once, open"));
            screen.line(&link);
        }
        screen.flush()?;
        until_asked_to_stop().await?;
        serving.stop().await;
        Ok(Exit::Done)
    }
}

#[cfg(unix)]
async fn until_asked_to_stop() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

#[cfg(not(unix))]
async fn until_asked_to_stop() -> Result<()> {
    Ok(tokio::signal::ctrl_c().await?)
}
