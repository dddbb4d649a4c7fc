//! A program of one's own that has Roundel's commands among its own. It knows its workflows and
//! its database, so nobody has to name them: `shop start fulfil '"a lamp"' --wait` runs the
//! workflow in this very process, and `shop runs list` shows what became of it.
//!
//! ```sh
//! cargo run -p roundel-cli --example mounted -- start fulfil '"a lamp"' --wait
//! cargo run -p roundel-cli --example mounted -- runs list
//! cargo run -p roundel-cli --example mounted -- check
//! cargo run -p roundel-cli --example mounted -- prices
//! ```

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use roundel::{Cx, Engine, Result, Workflow};
use roundel_cli::Exit;

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
pub async fn run(shop: Shop, file: &Path) -> Exit {
    match shop {
        Shop::Prices => {
            println!("a lamp: 12");
            Exit::Done
        }
        // Its workflows run while the command does; only `check` takes no work.
        Shop::Roundel(command) => {
            let engine = Engine::open(file).register(FULFIL, fulfil);
            command.run_in(engine).await
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    run(Shop::parse(), Path::new("shop.db")).await.into()
}
