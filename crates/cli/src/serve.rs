//! `serve`: the HTTP API and the dashboard, over the database.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use roundel::Client;
use roundel_server::{Log, Server, Tls, Tokens, Traces};
use serde_json::json;

use crate::exit::{Exit, Failed, Result};
use crate::show::Output;
use crate::stop::Stop;

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
    /// TLS of its own: the certificate, in PEM's form, with those that lead to a root. It is read
    /// again when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of that certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Workers in other languages show a certificate that one of these signed, in PEM's form, or
    /// are refused, whatever their token.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Tell this collector of OpenTelemetry of the runs of the namespace that end from now on,
    /// whoever works on them, such as `http://127.0.0.1:4318`.
    #[arg(long, value_name = "URL")]
    traces: Option<String>,
    /// Of this part of all traces, 0 to 1.
    #[arg(long, value_name = "PART", requires = "traces", default_value = "1")]
    traces_part: f64,
    /// What is told to standard error, as JSON, a line each.
    #[arg(long, value_enum, default_value = "warn", value_name = "LEVEL")]
    log: Level,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Level {
    Error,
    Warn,
    Info,
}

impl From<Level> for tracing::Level {
    fn from(level: Level) -> tracing::Level {
        match level {
            Level::Error => tracing::Level::ERROR,
            Level::Warn => tracing::Level::WARN,
            Level::Info => tracing::Level::INFO,
        }
    }
}

impl Serve {
    fn tls(&self) -> Result<Option<Tls>> {
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        let tls = Tls::from_files(certificate, key).and_then(|tls| match &self.tls_client_ca {
            Some(signers) => tls.workers_signed_by(signers),
            None => Ok(tls),
        });
        Ok(Some(tls.map_err(|error| Failed::usage(error.to_string()))?))
    }

    pub(crate) async fn run(&self, client: &Client) -> Result<Exit> {
        Log::new(self.log.into(), std::io::stderr()).install();
        let tokens = Tokens::at(&self.tokens);
        let tokens = tokens.map_err(|error| Failed::usage(error.to_string()))?;
        let mut server = Server::over(client.clone()).tokens(tokens);
        for name in &self.host {
            server = server.host(name.clone());
        }
        if self.behind_tls {
            server = server.behind_tls();
        }
        if let Some(tls) = self.tls()? {
            server = server.tls(tls);
        }
        let traces = self.traces.as_ref().map(|url| Traces::to(url));
        let traces = traces.transpose().map_err(Failed::usage)?;
        let server = server.build();
        let serving = server.serve(self.listen).await;
        let serving = serving.map_err(|error| Failed::usage(error.to_string()))?;
        let (at, code) = (serving.address(), server.login_code());
        let scheme = match &self.tls_cert {
            Some(_) => "https",
            None => "http",
        };
        let link = format!("{scheme}://{at}/login?code={}", code.reveal());
        let mut stop = Stop::listen()?;
        let mut screen = self.output.screen();
        if self.output.json {
            screen.json(&json!({"address": at.to_string(), "login": link}));
        } else {
            screen.line(&format!(
                "serving on {scheme}://{at}; to log in, once, open"
            ));
            screen.line(&link);
        }
        screen.flush()?;
        let telling = traces.map(|traces| traces.part(self.traces_part).watch(client));
        stop.asked().await;
        serving.stop().await;
        if let Some(telling) = telling {
            telling.stop().await;
        }
        Ok(Exit::Done)
    }
}
