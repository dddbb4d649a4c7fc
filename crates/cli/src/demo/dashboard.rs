//! The demo in a browser: a server beside it, with a client of its own.

use std::net::SocketAddr;

use roundel::Engine;
use roundel_server::{Server, Serving};

use super::place::Place;
use super::screen::Screen;

/// The usual address, and any other if that is taken.
const USUAL: u16 = 8462;

/// The dashboard, if it is wanted.
pub(super) struct Dashboard(Option<(Engine, Serving)>);

/// Opens it if it is wanted, and says where it is.
pub(super) async fn open(
    wanted: bool,
    place: &Place,
    screen: &mut Screen,
) -> Result<Dashboard, Box<dyn std::error::Error>> {
    if !wanted {
        return Ok(Dashboard(None));
    }
    let engine = place.engine().start().await?;
    let server = Server::over(engine.client()).build();
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let serving = match server.serve(at(USUAL)).await {
        Ok(serving) => serving,
        Err(_) => server.serve(at(0)).await?,
    };
    let (address, code) = (serving.address(), server.login_code());
    let link = format!("http://{address}/login?code={}", code.reveal());
    screen.say(&format!("Watch it; this link is good once:\n{link}\n"));
    Ok(Dashboard(Some((engine, serving))))
}

impl Dashboard {
    /// Until somebody stops it.
    pub(super) async fn stay(self) -> std::io::Result<()> {
        let Some((engine, serving)) = self.0 else {
            return Ok(());
        };
        super::print("\nThe dashboard stays; Ctrl-C ends it.\n")?;
        tokio::signal::ctrl_c().await?;
        serving.stop().await;
        engine.shutdown().await;
        Ok(())
    }
}
