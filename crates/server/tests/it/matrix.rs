//! Every route, every role, every namespace: made from the table of routes itself.

use roundel_server::routes::{Listed, listed};
use roundel_server::{Limits, Role};

use crate::support::Place;

const RUN: &str = "01890000-0000-7000-8000-000000000000";

/// The line of a request for this route, in that namespace.
fn line(route: &Listed, namespace: &str) -> String {
    let path = route.path.split('/').map(|part| match part {
        "{namespace}" => namespace,
        "{run}" | "{id}" => RUN,
        part if part.starts_with('{') => "x",
        part => part,
    });
    format!("{} {}", route.method, path.collect::<Vec<_>>().join("/"))
}

/// The status of a request with this header; streams are not read to their end.
async fn status(place: &Place, line: &str, header: &str) -> u16 {
    let bytes = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\n{header}Content-Length: 0\r\n\
         Connection: close\r\n\r\n"
    );
    place.head(bytes.as_bytes()).await.0.status
}

#[tokio::test]
async fn n13_every_route_lets_in_those_roles_that_may_and_nobody_else() {
    let often = Limits {
        per_second: 1_000_000,
        burst: 1_000_000,
        ..Limits::default()
    };
    let place = Place::with(often).await;
    let routes = listed();
    assert!(routes.len() > 40, "{}", routes.len());
    let mut refused = 0;
    for route in &routes {
        let own = line(route, "default");
        assert_eq!(status(&place, &own, "").await, 401, "{own}");
        let wrong = format!("Authorization: Bearer roundel_{}\r\n", "0".repeat(64));
        assert_eq!(status(&place, &own, &wrong).await, 401, "{own}");
        for role in Role::ALL {
            let token = format!("Authorization: Bearer {}\r\n", place.token(role));
            let got = status(&place, &own, &token).await;
            let may = role.may(route.action) && !route.in_all;
            let let_in = ![401, 403, 405, 421].contains(&got) && got != 0 && got < 500;
            assert_eq!(let_in, may, "{own} by {}: {got}", role.as_str());
            refused += u32::from(!may);
            if !route.in_namespace {
                continue;
            }
            // N16, N18: a namespace that was not given, also by another spelling.
            for other in ["other", "*", "default%00", "Default", "default%2F", "%2A"] {
                let line = line(route, other);
                let got = status(&place, &line, &token).await;
                assert!(
                    [400, 403, 404].contains(&got),
                    "{line} by {}: {got}",
                    role.as_str()
                );
            }
        }
    }
    assert!(refused > 100, "{refused}");
    place.engine.shutdown().await;
}

#[tokio::test]
async fn n15_exactly_two_paths_are_open_to_all() {
    let place = Place::new().await;
    for open in ["/healthz", "/readyz"] {
        assert_eq!(
            status(&place, &format!("GET {open}"), "").await,
            200,
            "{open}"
        );
        assert_eq!(
            status(&place, &format!("POST {open}"), "").await,
            405,
            "{open}"
        );
    }
    for path in [
        "/api/v1/healthz",
        "/healthz/",
        "//healthz",
        "/x/readyz",
        "/healthz%2f",
        "/HEALTHZ",
        "/api/v1/default/runs/healthz",
        "/api/v1/default/runs;/readyz",
        "/metrics/../healthz",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
    ] {
        let got = status(&place, &format!("GET {path}"), "").await;
        assert!([400, 401, 404].contains(&got), "{path}: {got}");
    }
    // N18: a run of another namespace is not there.
    let other = place.engine.in_namespace("other").unwrap();
    let name = roundel::Name::constant("double");
    let run = other.start_named(name, roundel::Payload::parse("1").unwrap());
    let run = run.await.unwrap().id();
    for below in ["", "/tree", "/why", "/undo", "/events"] {
        let token = format!("Authorization: Bearer {}\r\n", place.token(Role::Admin));
        let line = format!("GET /api/v1/default/runs/{run}{below}");
        assert_eq!(status(&place, &line, &token).await, 404, "{line}");
    }
    place.engine.shutdown().await;
}
