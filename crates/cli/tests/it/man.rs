//! Man pages: made of the same definition as `--help`.

use crate::support::{Place, said};

#[test]
fn every_command_has_a_page_and_every_flag_is_in_it() {
    let place = Place::empty();
    said(&mut place.command(&["man", "--dir", "pages"])).ok();
    let page = |name: &str| {
        let path = place.folder.path().join("pages").join(format!("{name}.1"));
        let page = std::fs::read_to_string(path);
        page.unwrap_or_else(|error| panic!("{name}: {error}"))
            .replace("\\-", "-")
    };
    for (name, parts) in [
        (
            "roundel",
            &["runs", "backup", "--db", "--token-file", "Exit codes"][..],
        ),
        ("roundel-runs", &["show", "cancel"]),
        ("roundel-runs-show", &["--follow", "--execution", "--json"]),
        ("roundel-restore", &["--in-place"]),
        ("roundel-top", &["--once", "--every"]),
    ] {
        let page = page(name);
        assert!(page.contains(".TH "), "{name}: {page}");
        for part in parts {
            assert!(page.contains(part), "`{part}` is missing in {name}: {page}");
        }
    }
    let printed = said(&mut place.command(&["man"])).ok();
    assert!(printed.out.contains(".TH roundel 1"), "{printed:?}");
    // Who cannot write says so.
    std::fs::write(place.folder.path().join("file"), "").unwrap();
    said(&mut place.command(&["man", "--dir", "file"])).fails(1, &["file"]);
}
