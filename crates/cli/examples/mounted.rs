//! A program of one's own that has Roundel's commands among its own. It knows its workflows and
//! its database, so nobody has to name them: `shop start fulfil '"a lamp"' --wait` runs the
//! workflow in this very process, and `shop runs list` shows what became of it.
//!
//! ```sh
//! cargo run -p roundel-cli --example mounted -- start fulfil '"a lamp"' --wait
//! cargo run -p roundel-cli --example mounted -- runs list
//! cargo run -p roundel-cli --example mounted -- prices
//! ```

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use roundel::{Cx, Engine, Result, Workflow};
use roundel_cli::{Database, Exit};

const FULFIL: Workflow<String, String> = Workflow::named("fulfil");

async fn pack(item: &str) -> Result<String> {
    Ok(format!("{item}, in a box"))
}

async fn fulfil(cx: Cx, item: String) -> Result<String> {
    cx.effect("pack", |_| pack(&item)).await
}

/// A shop.
#[derive(Parser, Debug)]
pub enum Shop {
    /// What things cost.
    Prices,
    #[command(flatten)]
    Roundel(roundel_cli::Command),
}

/// Runs one command of the shop.
pub async fn run(shop: Shop, file: &Path) -> std::result::Result<Exit, roundel::Error> {
    match shop {
        Shop::Prices => {
            println!("a lamp: 12");
            Ok(Exit::Done)
        }
        Shop::Roundel(command) => {
            let engine = Engine::open(file).register(FULFIL, fulfil).start().await?;
            let exit = command.run(&Database::open(engine.client())).await;
            engine.shutdown().await;
            Ok(exit)
        }
    }
}

#[tokio::main]
async fn main() -> std::result::Result<ExitCode, roundel::Error> {
    let exit = run(Shop::parse(), Path::new("shop.db")).await?;
    Ok(exit.into())
}
