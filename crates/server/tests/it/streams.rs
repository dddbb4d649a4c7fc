//! Live views.

use roundel_server::{Limits, Role};

use crate::support::{DOUBLE, Place, WAITS, WORD, until};

fn request(place: &Place, path: &str) -> Vec<u8> {
    let token = place.token(Role::Viewer);
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n")
        .into_bytes()
}

#[tokio::test]
async fn m7_there_are_so_many_streams_and_no_more() {
    let limits = Limits {
        streams: 2,
        ..Limits::default()
    };
    let place = Place::with(limits).await;
    let events = request(&place, "/api/v1/default/events");
    let first = place.head(&events).await;
    let second = place.head(&events).await;
    assert_eq!((first.0.status, second.0.status), (200, 200));
    assert!(first.0.head.contains("text/event-stream"), "{first:?}");
    assert_eq!(place.head(&events).await.0.status, 503);
    let metrics = place.ask(Role::Viewer, "GET /metrics", None).await.ok();
    assert!(
        metrics.body.contains("roundel_http_streams 2\n"),
        "{metrics:?}"
    );
    drop((first, second));
    let begin = std::time::Instant::now();
    while place.head(&events).await.0.status != 200 {
        assert!(
            begin.elapsed() < crate::support::PATIENCE,
            "places are not given back"
        );
        tokio::task::yield_now().await;
    }
    place.engine.shutdown().await;
}

#[tokio::test]
async fn a_stream_tells_what_becomes_of_a_run_and_ends_with_the_server() {
    let place = Place::new().await;
    let run = place.engine.start(WAITS, &1).await.unwrap();
    let path = format!("/api/v1/default/runs/{}/events", run.id());
    let (_, mut stream) = place.head(&request(&place, &path)).await;
    place
        .engine
        .signal(run.id(), WORD, &"now".to_owned())
        .await
        .unwrap();
    let said = until(&mut stream, b"\"state\":\"completed\"").await;
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("event: run\ndata: {"), "{said}");
    assert!(said.contains("completed"), "{said}");
    let (_, mut counts) = place.head(&request(&place, "/api/v1/default/events")).await;
    place
        .engine
        .start(DOUBLE, &2)
        .await
        .unwrap()
        .result()
        .await
        .unwrap();
    until(&mut counts, b"\"workflow\":\"double\"").await;
    place.serving.stop().await;
    let rest = until(&mut counts, b"never said").await;
    assert!(rest.len() < 1 << 20, "it ended");
    place.engine.shutdown().await;
}
