//! What is asked for, read, drawn and written.

use super::plot::{decades, duration, linear, short, svg};
use super::{AXES, Known, Options, Point, STORES, Stores, page, points};

fn point(size: u64, per_second: f64) -> Point {
    Point {
        size,
        per_second,
        p50_us: 500.0,
        p99_us: 2_000.0,
        ratio: 1.0,
    }
}

fn stores() -> Stores {
    let sqlite = vec![point(0, 100.0), point(100, 100.0), point(10_000, 50.0)];
    let postgres = vec![point(0, 80.0), point(1_000, 75.0)];
    [
        ("sqlite".to_owned(), sqlite),
        ("postgres".to_owned(), postgres),
    ]
    .into()
}

fn known() -> Known {
    Known {
        machine: vec!["Machine: one.".to_owned()],
        figures: [("stored".to_owned(), stores())].into(),
    }
}

#[test]
fn what_was_measured_is_read_as_it_was_written() {
    let known = known();
    assert_eq!(Known::read(&known.written()), Some(known));
    assert_eq!(Known::read("{}"), None);
}

#[test]
fn points_are_read_from_what_the_benchmark_prints() {
    let said = r#"{"workload":"growth","stored":[{"size":5,"per_second":2.0,"p50_us":1.0,
        "p99_us":3.0,"ratio":1.0}],"journal":[]}"#;
    let said = format!("noise\n{}\n", said.replace('\n', ""));
    assert_eq!(points(&said, "stored").expect("points")[0].size, 5);
    for missing in ["journal", "workers"] {
        assert!(points(&said, missing).is_err(), "{missing}");
    }
    assert!(points("panicked", "stored").is_err());
}

#[test]
fn a_picture_has_a_line_for_each_store_and_stays_within_itself() {
    let svg = svg("stored", &stores());
    for class in ["sqlite", "postgres"] {
        // In the legend, of rates, of medians; and of the slowest.
        assert_eq!(
            svg.matches(&format!("<polyline class=\"{class}\"")).count(),
            3
        );
        assert_eq!(
            svg.matches(&format!("<polyline class=\"{class} slow\""))
                .count(),
            1
        );
    }
    let places = svg.split("points=\"").skip(1).flat_map(|rest| {
        let places = rest.split('"').next().unwrap_or_default();
        places
            .split([' ', ','])
            .map(|number| number.parse::<f64>().expect("a number"))
    });
    for (at, place) in places.enumerate() {
        let most = if at % 2 == 0 { 860.0 } else { 330.0 };
        assert!((0.0..=most).contains(&place), "{place}");
    }
    for label in [">0<", ">100<", ">1 k<", ">10 k<", ">1 ms<", ">10 ms<"] {
        assert!(svg.contains(label), "{label}\n{svg}");
    }
}

#[test]
fn the_largest_size_is_named_where_no_power_of_ten_stands_close_to_it() {
    for (size, named) in [(50_000, true), (11_000, false)] {
        let points = vec![point(10, 1.0), point(size, 1.0)];
        let svg = svg("journal", &[("sqlite".to_owned(), points)].into());
        assert_eq!(svg.contains(&format!(">{}<", short(size as f64))), named);
    }
}

#[test]
fn sizes_are_named_by_powers_of_ten_and_numbers_of_processes_by_those_of_two() {
    for (sizes, named) in [([10, 100], [">10<", ">100<"]), ([1, 4], [">2<", ">4<"])] {
        let points = sizes.map(|size| point(size, 1.0)).to_vec();
        let svg = svg("workers", &[("sqlite".to_owned(), points)].into());
        for label in named {
            assert!(svg.contains(label), "{label}\n{svg}");
        }
    }
}

#[test]
fn twice_the_rate_stands_twice_as_high() {
    let svg = svg("stored", &stores());
    let line = svg
        .lines()
        .filter(|line| line.contains("class=\"sqlite\""))
        .nth(1);
    let places = line
        .and_then(|line| line.split('"').nth(3))
        .expect("places");
    let heights: Vec<f64> = places
        .split([' ', ','])
        .skip(1)
        .step_by(2)
        .map(|y| 272.0 - y.parse::<f64>().expect("a number"))
        .collect();
    assert!((heights[0] - 2.0 * heights[2]).abs() < 0.2, "{heights:?}");
    assert_eq!(heights[0], heights[1]);
}

#[test]
fn axes_have_ticks_that_can_be_read() {
    assert_eq!(linear(95.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
    assert_eq!(linear(100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
    assert_eq!(linear(130_000.0).last(), Some(&150_000.0));
    assert_eq!(decades(150.0, 2_000.0), (2.0, 4.0));
    assert_eq!(decades(100.0, 100.0), (2.0, 3.0));
    assert_eq!(short(10_000_000.0), "10 M");
    assert_eq!(short(1_500.0), "1.5 k");
    assert_eq!(duration(1_000.0), "1 ms");
    assert_eq!(duration(100.0), "100 \u{b5}s");
    assert_eq!(duration(2_500_000.0), "2.5 s");
}

#[test]
fn the_page_shows_what_is_known_and_leaves_out_the_rest() {
    let page = page::page(&known());
    for part in [
        "- Machine: one.",
        "![Stored runs](growth/stored.svg)",
        "| SQLite | 10,000 | 50.0 | 1.00 | 500 \u{b5}s | 2 ms |",
        "| PostgreSQL | 0 | 80.0 |",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    assert!(!page.contains("## Replay"));
}

#[test]
fn what_is_asked_for_is_checked() {
    let parse = |line: &str| {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words)
    };
    let all = parse("").expect("options");
    let of = |options: &Options| {
        let axes = AXES
            .iter()
            .flat_map(|axis| STORES.iter().map(move |store| (axis, *store)));
        axes.filter(|(axis, store)| options.asks_for(axis, store))
            .count()
    };
    assert_eq!(of(&all), 9, "a file has one process");
    let some = parse("--only stored,workers --store sqlite --filling 10 --quick");
    let some = some.expect("options");
    assert_eq!((of(&some), some.quick, &*some.filling), (1, true, "10"));
    for wrong in [
        "--only nothing",
        "--store oracle",
        "--filling soon",
        "--only",
        "-x",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
