//! Payloads that are sealed, as the command and the server show them with the keys and without.

use roundel::{Client, Cx, Engine, Failure, RunId, RunState, Workflow};

use crate::serve::Server;
use crate::support::{Place, said};

const SECRET: &str = "canary-of-keys";
const WAITS: Workflow<String, ()> = Workflow::named("waits");
const FAILS: Workflow<String, ()> = Workflow::named("fails");

/// A folder with keys, and a database with runs that were sealed with them: one waits, one is
/// parked.
async fn sealed() -> (Place, [RunId; 2]) {
    let place = Place::empty();
    said(&mut place.command(&["keys", "new", "keys", "--name", "one"])).ok();
    let engine = Engine::open(place.db())
        .key_file(place.folder.path().join("keys"))
        .register(WAITS, async |cx: Cx, input: String| {
            cx.set_state(&serde_json::json!({ "held": input })).await?;
            cx.wait(roundel::Signal::<()>::named("go")).await
        })
        .register(FAILS, async |_: Cx, input: String| {
            Err(Failure::permanent(input))
        })
        .start()
        .await
        .expect("an engine");
    let waits = engine
        .start(WAITS, &SECRET.to_owned())
        .await
        .expect("a run")
        .id();
    let fails = engine
        .start(FAILS, &SECRET.to_owned())
        .await
        .expect("a run")
        .id();
    for (run, state) in [(waits, RunState::Waiting), (fails, RunState::Parked)] {
        is(&engine.client(), run, state).await;
    }
    let ada = engine.operator("ada").expect("a name");
    ada.patch_state(waits, &serde_json::json!({ "by": SECRET }), None)
        .await
        .expect("a patch");
    engine.shutdown().await;
    (place, [waits, fails])
}

async fn is(client: &Client, run: RunId, state: RunState) {
    let begun = std::time::Instant::now();
    while client.run(run).await.expect("it is there").row.state != state {
        assert!(begun.elapsed().as_secs() < 60, "it is never {state:?}");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn p3_the_command_shows_what_is_sealed_with_the_key_alone() {
    let (place, [waits, fails]) = sealed().await;
    let (waits, fails) = (waits.to_string(), fails.to_string());
    for args in [
        &["runs", "show", &waits, "--full"][..],
        &["runs", "show", &waits, "--json"],
        &["runs", "show", &fails],
        &["runs", "why", &fails],
        &["parked", "list"],
        &["parked", "groups"],
        &["parked", "show", &fails],
        &["parked", "list", "--json"],
        &["audit", "--json"],
    ] {
        let shown = place.run(args).ok();
        let without = format!("{}{}", shown.out, shown.err);
        assert!(
            without.contains("encrypted (key one)"),
            "{args:?}: {without}"
        );
        assert!(
            !without.contains("roundel:sealed") && !without.contains(SECRET),
            "{without}"
        );
        let with = place
            .run(&[args, &["--key-file", "keys"]].concat())
            .ok()
            .out;
        assert!(with.contains(SECRET), "{args:?}: {with}");
        assert!(!with.contains("encrypted"), "{with}");
    }
    for args in [
        &["verify"][..],
        &["doctor"],
        &["audit", "verify"],
        &["runs", "list"],
        &["backup", "copy.db"],
    ] {
        let said = place.run(args);
        assert!(said.code == 0 || args == ["doctor"], "{said:?}");
        assert!(!said.out.contains("encrypted"), "{said:?}");
    }
    let copy = std::fs::read(place.folder.path().join("copy.db")).expect("a copy");
    let has = |text: &str| copy.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(has("roundel:sealed:1:one:") && !has(SECRET));
}

#[tokio::test]
async fn p3_the_server_shows_what_is_sealed_if_it_was_given_the_key() {
    let (place, [waits, fails]) = sealed().await;
    let add = ["tokens", "add", "ada", "--role", "admin", "--json"];
    let token = said(&mut place.command(&add)).ok().json()["token"].clone();
    let bearer = format!(
        "Authorization: Bearer {}\r\n",
        token.as_str().expect("a token")
    );
    for (more, sees) in [(&[][..], false), (&["--key-file", "keys"], true)] {
        let server = Server::start(&place, more);
        let space = "/api/v1/default";
        for path in [
            format!("{space}/runs/{waits}"),
            format!("{space}/runs/{fails}"),
            format!("{space}/parked"),
            format!("{space}/parked/groups"),
            format!("{space}/audit"),
        ] {
            let answer = server.get(&path, &bearer);
            assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
            assert_eq!(answer.contains(SECRET), sees, "{path}: {answer}");
            assert_eq!(
                answer.contains("encrypted (key one)"),
                !sees,
                "{path}: {answer}"
            );
            assert!(!answer.contains("roundel:sealed"), "{path}: {answer}");
        }
    }
}

#[tokio::test]
async fn p6_keys_are_made_added_and_changed_and_what_old_ones_sealed_is_read() {
    let (place, [waits, _]) = sealed().await;
    let keys = |args: &[&str]| said(&mut place.command(&[&["keys"], args].concat()));
    keys(&["new", "keys"]).fails(2, &["keys", "cannot be written"]);
    assert_eq!(
        keys(&["add", "keys", "--name", "two"]).ok().out,
        "one  seals\ntwo  opens\n"
    );
    keys(&["add", "keys", "--name", "two"]).fails(2, &["there already"]);
    assert_eq!(
        keys(&["use", "keys", "two"]).ok().out,
        "two  seals\none  opens\n"
    );
    keys(&["use", "keys", "three"]).fails(2, &["no key `three`"]);
    let listed = keys(&["list", "keys", "--json"]).ok().out;
    assert!(
        listed.starts_with(r#"{"name":"two","seals":true}"#),
        "{listed}"
    );
    let waits = waits.to_string();
    let with = ["--key-file", "keys"];
    let shown = place
        .run(&[&["runs", "show", &waits, "--full"][..], &with].concat())
        .ok();
    assert!(shown.out.contains(SECRET), "{shown:?}");
    let patch = ["runs", "patch", &waits, r#"{"more":"canary"}"#];
    let patched = place.run(&[&patch[..], &with].concat()).ok();
    assert!(patched.out.contains("canary"), "{patched:?}");
    assert!(
        place
            .run(&["runs", "show", &waits, "--json"])
            .out
            .contains("encrypted (key two)")
    );
    let path = place.folder.path().join("keys");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        assert_eq!(
            std::fs::metadata(&path)
                .expect("it is there")
                .permissions()
                .mode()
                & 0o777,
            0o600
        );
        std::fs::set_permissions(&path, mode(0o644)).expect("it is ours");
        place
            .run(&[&["runs", "list"][..], &with].concat())
            .fails(2, &["chmod 600"]);
    }
    std::fs::remove_file(path).expect("it is ours");
    place
        .run(&[&["runs", "list"][..], &with].concat())
        .fails(2, &["keys", "cannot be used"]);
}
