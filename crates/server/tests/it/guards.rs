//! Names, origins, sessions, and what answers carry and do not tell.

use roundel_server::{Limits, Role, Server, SetupError};
use serde_json::json;

use crate::support::Place;

/// Logs in with a code; what is in the cookie.
async fn cookie(place: &Place) -> String {
    let code = place.server.login_code();
    let line = format!("GET /login?code={}", code.reveal());
    let entered = place.send(&line, "", None).await.ok();
    let cookie = entered
        .head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie.expect("a cookie").to_owned();
    for part in ["httponly", "samesite=strict", "path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let again = place.send(&line, "", None).await;
    again.is(401, "unauthenticated");
    let cookie = cookie.split(';').next().expect("a pair");
    format!("Cookie: {cookie}\r\n")
}

#[tokio::test]
async fn n11_a_name_that_was_not_configured_is_refused() {
    let place = Place::new().await;
    let token = place.token(Role::Admin);
    for path in ["/healthz", "/readyz", "/login", "/api/v1/me"] {
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1:1.evil"] {
            let bytes = format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
                 Connection: close\r\n\r\n"
            );
            place.raw(bytes.as_bytes()).await.is(421, "misdirected");
        }
    }
    place.engine.shutdown().await;
}

#[tokio::test]
async fn n12_a_cookie_pays_for_nothing_that_another_site_asks() {
    let place = Place::new().await;
    let cookie = cookie(&place).await;
    let ask = async |what: &str, more: &str| {
        let body = json!({"workflow": "double", "input": 1});
        place
            .send(what, &format!("{cookie}{more}"), Some(&body))
            .await
    };
    let start = "POST /api/v1/default/runs";
    let same = "Sec-Fetch-Site: same-origin\r\nOrigin: http://localhost\r\n";
    ask(start, same).await.ok();
    for more in [
        "",
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\nOrigin: http://localhost\r\n",
    ] {
        ask(start, more).await.is(403, "cross_site");
    }
    // N14: streams too.
    for path in ["GET /api/v1/default/events", "GET /api/v1/me"] {
        let line = format!("{path} HTTP/1.1\r\nHost: localhost\r\n{cookie}");
        let bytes = format!("{line}Sec-Fetch-Site: cross-site\r\nConnection: close\r\n\r\n");
        place.raw(bytes.as_bytes()).await.is(403, "cross_site");
    }
    // A session ends when it is asked to.
    ask("DELETE /api/v1/session", same).await;
    place
        .send("DELETE /api/v1/session", &format!("{cookie}{same}"), None)
        .await
        .ok();
    let gone = place.send("GET /api/v1/me", &cookie, None).await;
    gone.is(401, "unauthenticated");
    place.engine.shutdown().await;
}

#[tokio::test]
async fn n10_others_reach_nothing_that_has_no_tokens() {
    let place = Place::new().await;
    let bare = Server::over(place.engine.client()).build();
    let refused = bare.serve(([0, 0, 0, 0], 0).into()).await.unwrap_err();
    assert!(matches!(refused, SetupError::Open(_)), "{refused}");
    bare.serve(([127, 0, 0, 1], 0).into())
        .await
        .unwrap()
        .stop()
        .await;
    place.engine.shutdown().await;
}

#[tokio::test]
async fn o3_o8_every_answer_says_what_browsers_must_not_do() {
    let place = Place::new().await;
    let admin = place.ask(Role::Admin, "GET /api/v1/me", None).await.ok();
    let open = place.send("GET /healthz", "", None).await.ok();
    let lost = place.send("GET /nowhere", "", None).await;
    let nobody = place.send("GET /api/v1/me", "", None).await;
    let login = place.send("GET /login", "", None).await.ok();
    for answer in [admin, open, lost, nobody, login] {
        for part in [
            "default-src 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
            "cross-origin-opener-policy: same-origin",
        ] {
            assert!(answer.head.contains(part), "{part}: {answer:?}");
        }
        assert!(!answer.head.contains("access-control"), "{answer:?}");
    }
    place.engine.shutdown().await;
}

#[tokio::test]
async fn n23_a_database_that_is_gone_is_told_without_its_inside() {
    let place = Place::new().await;
    place.engine.shutdown().await;
    for line in ["GET /api/v1/default/runs", "POST /api/v1/default/offers"] {
        let body = json!({"signal": "word"});
        let body = Some(&body).filter(|_| line.starts_with("POST"));
        let answer = place.ask(Role::Admin, line, body).await;
        answer.is(503, "unavailable");
        let text = answer.body.to_ascii_lowercase();
        for word in ["sql", "/", "engine", "shut"] {
            let told = answer.json()["detail"]
                .as_str()
                .unwrap()
                .to_ascii_lowercase();
            assert!(!told.contains(word), "{word}: {text}");
        }
    }
    // L9: readiness is a commit, not a promise.
    place.send("GET /healthz", "", None).await.ok();
    place
        .send("GET /readyz", "", None)
        .await
        .is(503, "unavailable");
}

#[tokio::test]
async fn m2_n19_who_asks_too_often_waits_and_others_do_not() {
    let limits = Limits {
        per_second: 1,
        burst: 5,
        ..Limits::default()
    };
    let place = Place::with(limits).await;
    let mut statuses = Vec::new();
    for _ in 0..8 {
        statuses.push(place.ask(Role::Viewer, "GET /api/v1/me", None).await.status);
    }
    assert_eq!(statuses[..5], [200; 5], "{statuses:?}");
    assert!(statuses[5..].contains(&429), "{statuses:?}");
    place.ask(Role::Admin, "GET /api/v1/me", None).await.ok();
    let mut guesses = Vec::new();
    for guess in 0..8 {
        let header = format!("Authorization: Bearer roundel_{guess:064}\r\n");
        guesses.push(place.send("GET /api/v1/me", &header, None).await.status);
    }
    assert!(
        guesses.contains(&429) && !guesses.contains(&200),
        "{guesses:?}"
    );
    place.ask(Role::Admin, "GET /api/v1/me", None).await.ok();
    place.engine.shutdown().await;
}
