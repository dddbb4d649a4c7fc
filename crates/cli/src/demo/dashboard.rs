//! The demo in a browser: a server beside it, with a client of its own; and a shop that stays open
//! as long as somebody may be looking.

use std::net::SocketAddr;

use roundel::{Engine, EngineBuilder};
use roundel_server::{Server, Serving};

use super::evening;
use super::outside::{Outside, Services};
use super::place::Place;
use super::screen::Screen;

/// The usual address, and any other if that is taken.
const USUAL: u16 = 8462;

/// The dashboard, if it is wanted.
pub(super) struct Dashboard(Option<Open>);

struct Open {
    engine: Engine,
    serving: Serving,
    /// What the evening is worked with.
    evening: EngineBuilder,
}

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
    Ok(Dashboard(Some(Open {
        engine,
        serving,
        evening: place.engine(),
    })))
}

impl Dashboard {
    /// Until somebody stops it; the shop has had so many orders.
    pub(super) async fn stay(
        self,
        services: &Services,
        orders: u32,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let Some(open) = self.0 else {
            return Ok(());
        };
        let shop = evening::register(open.evening, Outside(services.address));
        let shop = shop.start().await?;
        super::print("\nThe shop stays open, and so does the dashboard; Ctrl-C ends both.\n")?;
        let ended = tokio::select! {
            ended = evening::pass(&shop, orders) => ended.map_err(Into::into),
            asked = tokio::signal::ctrl_c() => asked.map_err(Into::into),
        };
        open.serving.stop().await;
        shop.shutdown().await;
        open.engine.shutdown().await;
        ended
    }
}
