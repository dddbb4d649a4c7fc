//! What schedules are held to: tables of cases, and what must be true of any.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const ZURICH: &str = "Europe/Zurich";
const NEW_YORK: &str = "America/New_York";
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

fn at(text: &str) -> Timestamp {
    let at: jiff::Timestamp = text.parse().expect("an instant");
    Timestamp(at.as_microsecond())
}

fn cron(expression: &str, zone: &str) -> Calendar {
    let (expression, zone) = (expression.to_owned(), zone.to_owned());
    Calendar::Cron { expression, zone }
}

fn next(expression: &str, zone: &str, after: &str, many: usize) -> Vec<String> {
    let times = cron(expression, zone)
        .times(Timestamp(0))
        .expect("a calendar");
    let found = times.following(at(after)).take(many);
    found.map(instant).collect()
}

#[test]
fn fa_20_a_cron_expression_names_its_times() {
    for (expression, after, expected) in [
        ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
        (
            "* * * * *",
            "2026-01-01T00:00:59.9Z",
            "2026-01-01T00:01:00Z",
        ),
        (
            "*/15 * * * *",
            "2026-01-01T00:46:00Z",
            "2026-01-01T01:00:00Z",
        ),
        (
            "5/20 * * * *",
            "2026-01-01T00:06:00Z",
            "2026-01-01T00:25:00Z",
        ),
        ("30 3 * * *", "2026-01-01T03:30:00Z", "2026-01-02T03:30:00Z"),
        (
            "0 9-17/4 * * *",
            "2026-01-01T09:30:00Z",
            "2026-01-01T13:00:00Z",
        ),
        (
            "0 0 * * mon-fri",
            "2026-01-02T00:00:00Z",
            "2026-01-05T00:00:00Z",
        ),
        ("0 0 * * 7", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
        (
            "0 0 * * 5-7",
            "2026-01-03T00:00:00Z",
            "2026-01-04T00:00:00Z",
        ),
        ("0 0 L * *", "2028-02-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        (
            "0 0 15,L * *",
            "2026-02-16T00:00:00Z",
            "2026-02-28T00:00:00Z",
        ),
        (
            "0 0 29 feb *",
            "2096-03-01T00:00:00Z",
            "2104-02-29T00:00:00Z",
        ),
        ("0 0 31 * ?", "2026-04-01T00:00:00Z", "2026-05-31T00:00:00Z"),
        (
            "0 0 13 * fri",
            "2026-01-03T00:00:00Z",
            "2026-01-09T00:00:00Z",
        ),
        (
            "*/20 0 0 1 1 *",
            "2026-01-01T00:00:20Z",
            "2026-01-01T00:00:40Z",
        ),
        ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
        ("@daily", "2026-12-31T10:00:00Z", "2027-01-01T00:00:00Z"),
        ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
        ("@monthly", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"),
        ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
    ] {
        let found = next(expression, "UTC", after, 1);
        assert_eq!(found, [expected], "{expression} after {after}");
    }
    assert!(next("0 0 30 2 *", "UTC", "2026-01-01T00:00:00Z", 1).is_empty());
}

#[test]
fn fa_20_what_is_no_calendar_is_refused_with_what_to_say() {
    for (expression, zone, part) in [
        ("", "UTC", "0 fields"),
        ("* * * *", "UTC", "4 fields"),
        ("60 * * * *", "UTC", "`60` is no minute; say 0 to 59"),
        ("* 24 * * *", "UTC", "hour"),
        ("* * 0 * *", "UTC", "day of month"),
        ("* * * 13 *", "UTC", "month"),
        ("* * * * 8", "UTC", "day of week"),
        ("*/0 * * * *", "UTC", "step `0`"),
        ("9-5 * * * *", "UTC", "begins after it ends"),
        ("1,,2 * * * *", "UTC", "minute"),
        ("* * * foo *", "UTC", "`foo` is no month"),
        (
            "* * * * *",
            "Europe/Zuerich",
            "no time zone `Europe/Zuerich`",
        ),
    ] {
        let error = cron(expression, zone).times(Timestamp(0)).unwrap_err();
        assert!(error.contains(part), "{expression}: {error}");
    }
    let short = Calendar::Every(Duration::from_millis(999));
    assert!(short.times(Timestamp(0)).unwrap_err().contains("shorter"));
    let long = Calendar::Every(Duration::MAX);
    assert!(long.times(Timestamp(0)).unwrap_err().contains("too long"));
}

#[test]
fn fa_20_i5_a_time_that_clocks_do_not_show_is_due_once_when_they_were_set_forward() {
    // 02:00 becomes 03:00 in Zurich, at 01:00 UTC.
    let night = "2026-03-28T12:00:00Z";
    let found = next("30 2 * * *", ZURICH, night, 2);
    assert_eq!(found, ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    // All that the clocks jump over is one instant, which 03:00 is as well.
    let found = next("0,30 2,3 * * *", ZURICH, night, 3);
    let expected = [
        "2026-03-29T01:00:00Z",
        "2026-03-29T01:30:00Z",
        "2026-03-30T00:00:00Z",
    ];
    assert_eq!(found, expected);
    let found = next("0 * * * *", ZURICH, "2026-03-28T23:30:00Z", 3);
    let expected = [
        "2026-03-29T00:00:00Z",
        "2026-03-29T01:00:00Z",
        "2026-03-29T02:00:00Z",
    ];
    assert_eq!(found, expected);
    // Midnight itself is jumped over.
    let found = next("0 0 * * *", "America/Asuncion", "2023-09-30T12:00:00Z", 2);
    assert_eq!(found, ["2023-10-01T04:00:00Z", "2023-10-02T03:00:00Z"]);
    // A whole day is.
    let found = next("0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z", 1);
    assert_eq!(found, ["2011-12-30T10:00:00Z"]);
}

#[test]
fn fa_20_i5_a_time_that_clocks_show_twice_is_due_once() {
    // 02:00 becomes 01:00 in New York, at 06:00 UTC.
    let evening = "2026-10-31T20:00:00Z";
    let found = next("30 1 * * *", NEW_YORK, evening, 2);
    assert_eq!(found, ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]);
    for within in ["2026-11-01T05:45:00Z", "2026-11-01T06:15:00Z"] {
        let found = next("30 1 * * *", NEW_YORK, within, 1);
        assert_eq!(found, ["2026-11-02T06:30:00Z"], "after {within}");
    }
    // Half an hour is set back in Lord Howe, at 15:00 UTC.
    let found = next(
        "45 1 * * *",
        "Australia/Lord_Howe",
        "2026-04-04T13:00:00Z",
        2,
    );
    assert_eq!(found, ["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"]);
}

#[test]
fn fa_20_i5_what_is_due_every_hour_is_due_in_each_that_passes() {
    let found = next("30 * * * *", NEW_YORK, "2026-11-01T05:00:00Z", 3);
    let expected = [
        "2026-11-01T05:30:00Z",
        "2026-11-01T06:30:00Z",
        "2026-11-01T07:30:00Z",
    ];
    assert_eq!(found, expected);
    let found = next(
        "*/30 * * * *",
        "Australia/Lord_Howe",
        "2026-04-04T14:15:00Z",
        4,
    );
    let expected = [
        "2026-04-04T14:30:00Z",
        "2026-04-04T15:00:00Z",
        "2026-04-04T15:30:00Z",
        "2026-04-04T16:00:00Z",
    ];
    assert_eq!(found, expected);
}

#[test]
fn fa_20_i2_times_far_away_end_without_overflow() {
    for calendar in [
        cron("* * * * * *", "UTC"),
        Calendar::Every(HOUR),
        Calendar::Once(Timestamp(5)),
    ] {
        let times = calendar.times(Timestamp(0)).unwrap();
        assert_eq!(times.next(Timestamp::MAX), None, "{calendar}");
        let _ = times.next(Timestamp(i64::MIN));
    }
}

#[test]
fn fa_20_an_interval_is_counted_from_when_it_was_set() {
    let since = at("2026-01-01T10:07:30Z");
    let times = Calendar::Every(HOUR).times(since).unwrap();
    assert_eq!(times.next(since), Some(since.after(HOUR)));
    assert_eq!(
        times.next(since.after(HOUR + MINUTE)),
        Some(since.after(2 * HOUR))
    );
    let once = Calendar::Once(since).times(Timestamp(0)).unwrap();
    assert_eq!(once.next(since.before(MINUTE)), Some(since));
    assert_eq!(once.next(since), None);
}

#[test]
fn fa_20_i2_ten_years_of_seconds_are_not_counted_one_by_one() {
    let times = cron("* * * * * *", "UTC").times(Timestamp(0)).unwrap();
    let (from, until) = (at("2016-01-01T00:00:00Z"), at("2026-01-01T00:00:00Z"));
    let (latest, more) = times.latest((from, until), 3);
    let expected = [2, 1, 0].map(|back| until.before(Duration::from_secs(back)));
    assert_eq!((latest.as_slice(), more), (&expected[..], true));
    let (all, more) = times.latest((until.before(5 * Duration::from_secs(1)), until), 9);
    assert_eq!((all.len(), more), (5, false));
}

const ZONES: [&str; 10] = [
    "UTC",
    ZURICH,
    NEW_YORK,
    "Australia/Lord_Howe",
    "America/Asuncion",
    "Pacific/Apia",
    "Africa/Casablanca",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Antarctica/Troll",
];

fn field(least: u32, most: u32) -> impl Strategy<Value = String> {
    prop_oneof![
        Just("*".to_owned()),
        (1..=most).prop_map(|step| format!("*/{step}")),
        (least..=most).prop_map(|number| number.to_string()),
        (least..=most, least..=most).prop_map(|(one, other)| format!(
            "{}-{}",
            one.min(other),
            one.max(other)
        )),
        (least..=most, least..=most).prop_map(|(one, other)| format!("{one},{other}")),
    ]
}

prop_compose! {
    fn any_cron()(
        minute in field(0, 59),
        hour in field(0, 23),
        day in field(1, 31),
        month in field(1, 12),
        weekday in field(0, 7),
        zone in prop::sample::select(&ZONES[..]),
    ) -> Calendar {
        cron(&format!("{minute} {hour} {day} {month} {weekday}"), zone)
    }
}

/// From 2009 to 2037, in seconds: before and after the changes that are known.
const YEARS: std::ops::Range<i64> = 1_230_768_000..2_114_380_800;

proptest! {
    #[test]
    fn fa_20_the_times_of_a_cron_strictly_increase(calendar in any_cron(), from in YEARS) {
        let times = calendar.times(Timestamp(0)).unwrap();
        let mut last = Timestamp(from * 1_000_000);
        for at in times.following(last).take(60) {
            prop_assert!(at > last, "{calendar}: {} after {}", instant(at), instant(last));
            last = at;
        }
    }

    /// Wherever one asks from, the next time is the same: none is passed over, none made up.
    #[test]
    fn fa_20_the_next_time_is_the_same_from_everywhere_before_it(
        calendar in any_cron(),
        from in YEARS,
        part in 0.0..1.0,
    ) {
        let times = calendar.times(Timestamp(0)).unwrap();
        let from = Timestamp(from * 1_000_000);
        if let Some(next) = times.next(from) {
            #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
            let between = Timestamp(from.0 + ((next.0 - from.0) as f64 * part) as i64);
            prop_assert_eq!(times.next(between), Some(next), "{} from {}", calendar, between);
        }
    }

    /// Clocks show what the expression says, or were just set.
    #[test]
    fn fa_20_what_clocks_show_is_what_the_expression_says(calendar in any_cron(), from in YEARS) {
        let Calendar::Cron { zone, .. } = &calendar else { unreachable!() };
        let zone = jiff::tz::TimeZoneDatabase::bundled().get(zone).unwrap();
        let times = calendar.times(Timestamp(0)).unwrap();
        for at in times.following(Timestamp(from * 1_000_000)).take(20) {
            let at = jiff::Timestamp::from_microsecond(at.0).unwrap();
            let just = at.checked_sub(jiff::SignedDuration::from_secs(1)).unwrap();
            let was_set = zone.to_offset(at) != zone.to_offset(just);
            let shown = zone.to_datetime(at);
            let Calendar::Cron { expression, .. } = &calendar else { unreachable!() };
            let named = super::cron::Cron::parse(expression).unwrap();
            prop_assert!(was_set || named.at_or_after(shown) == Some(shown), "{calendar}: {shown}");
        }
    }
}

fn table(calendar: Calendar) -> Timetable {
    Timetable {
        calendar,
        workflow: Name::constant("report"),
        command: false,
        input: Payload::null(),
        overlap: Overlap::Skip,
        catch_up: CatchUp::One,
        grace: MINUTE,
        since: at("2026-01-01T00:00:00Z"),
    }
}

fn hourly() -> Timetable {
    table(cron("0 * * * *", "UTC"))
}

fn hour(hour: i64) -> Timestamp {
    Timestamp(at("2026-01-01T00:00:00Z").0 + hour * 3_600_000_000)
}

fn run(number: u8) -> RunId {
    RunId::from_bytes([number; 16])
}

/// One pass, in which all that is started begins as this run.
fn play(table: &Timetable, state: &mut ScheduleState, now: Timestamp) -> Vec<Timestamp> {
    let pass = pass(table, state, now).expect("a calendar");
    let begun = vec![Begun::New(run(7)); pass.starts.len()];
    state.done = pass.begun(&begun);
    state.asked.clear();
    pass.starts.iter().map(|tick| tick.at).collect()
}

fn told(state: &ScheduleState) -> Vec<(What, Timestamp)> {
    state
        .done
        .recent
        .iter()
        .map(|did| (did.what, did.at))
        .collect()
}

#[test]
fn fa_20_each_time_is_started_once_and_the_next_is_known() {
    let (table, mut state) = (hourly(), ScheduleState::default());
    assert!(play(&table, &mut state, hour(0)).is_empty());
    assert_eq!(state.done.next, Some(hour(1)));
    assert_eq!(play(&table, &mut state, hour(1)), [hour(1)]);
    assert_eq!(state.done.next, Some(hour(2)));
    assert!(play(&table, &mut state, hour(1)).is_empty());
    state.done.running = None;
    assert!(play(&table, &mut state, hour(1).after(MINUTE)).is_empty());
    assert_eq!(play(&table, &mut state, hour(2).after(MINUTE)), [hour(2)]);
    assert_eq!((state.done.started, state.done.missed), (2, 0));
}

#[test]
fn fa_20_while_the_last_run_goes_on_a_time_is_skipped_queued_or_started() {
    let started = |overlap| {
        let (table, mut state) = (
            Timetable {
                overlap,
                ..hourly()
            },
            ScheduleState::default(),
        );
        let during: Vec<_> = (1..=4)
            .flat_map(|at| play(&table, &mut state, hour(at)))
            .collect();
        state.done.running = None;
        let after = play(&table, &mut state, hour(4).after(MINUTE));
        (during, after, state)
    };
    let (during, after, state) = started(Overlap::Skip);
    assert_eq!((during, after), (vec![hour(1)], vec![]));
    let skipped = |at| (What::Skipped, hour(at));
    let expected = [(What::Started, hour(1)), skipped(2), skipped(3), skipped(4)];
    assert_eq!(
        (told(&state).as_slice(), state.done.skipped),
        (&expected[..], 3)
    );
    let (during, after, state) = started(Overlap::Queue);
    assert_eq!((during, after), (vec![hour(1)], vec![hour(2)]), "one waits");
    assert_eq!((state.done.skipped, state.done.waiting.len()), (2, 0));
    let (during, after, _) = started(Overlap::Allow);
    assert_eq!(
        (during, after),
        (vec![hour(1), hour(2), hour(3), hour(4)], vec![])
    );
}

#[test]
fn fa_20_c13_what_was_missed_is_made_up_for_as_the_schedule_says() {
    let late = hour(5).after(30 * MINUTE);
    let started = |catch_up, now| {
        let overlap = Overlap::Allow;
        let table = Timetable {
            catch_up,
            overlap,
            ..hourly()
        };
        let mut state = ScheduleState::default();
        let started = play(&table, &mut state, now);
        (started, state.done.missed)
    };
    assert_eq!(started(CatchUp::None, late), (vec![], 1));
    assert_eq!(started(CatchUp::One, late), (vec![hour(5)], 1));
    let all: Vec<_> = (1..=5).map(hour).collect();
    assert_eq!(started(CatchUp::All, late), (all.clone(), 0));
    // One that is in time replaces those that were missed.
    assert_eq!(started(CatchUp::None, hour(5)), (vec![hour(5)], 1));
    assert_eq!(started(CatchUp::One, hour(5)), (vec![hour(5)], 1));
    assert_eq!(started(CatchUp::All, hour(5)), (all, 0));
}

#[test]
fn fa_20_what_was_missed_is_started_one_after_the_other_unless_it_may_overlap() {
    let table = Timetable {
        catch_up: CatchUp::All,
        ..hourly()
    };
    let mut state = ScheduleState::default();
    let now = hour(3).after(30 * MINUTE);
    assert_eq!(play(&table, &mut state, now), [hour(1)]);
    assert_eq!(state.done.waiting.len(), 2);
    assert!(play(&table, &mut state, hour(4)).is_empty());
    assert_eq!(state.done.skipped, 1, "what is due is skipped as ever");
    for at in [2, 3] {
        state.done.running = None;
        assert_eq!(play(&table, &mut state, hour(4)), [hour(at)]);
    }
}

#[test]
fn fa_20_i2_a_clock_that_jumps_ten_years_brings_no_more_than_the_limit() {
    let now = at("2036-01-01T00:00:30Z");
    for catch_up in [CatchUp::None, CatchUp::One, CatchUp::All] {
        let overlap = Overlap::Allow;
        let calendar = cron("* * * * *", "UTC");
        let table = Timetable {
            catch_up,
            overlap,
            ..table(calendar)
        };
        let mut state = ScheduleState::default();
        let started = play(&table, &mut state, now);
        assert!(
            started.len() <= limits::MADE_UP,
            "{catch_up:?}: {}",
            started.len()
        );
        assert_eq!(state.done.missed, 1);
        let rest = play(&table, &mut state, now);
        assert!(rest.len() <= 1, "{catch_up:?}: {}", rest.len());
        assert_eq!(state.done.next, Some(now.after(MINUTE / 2)));
    }
}

#[test]
fn fa_20_a_schedule_that_is_paused_starts_nothing_and_owes_nothing() {
    let table = Timetable {
        catch_up: CatchUp::All,
        ..hourly()
    };
    let mut state = ScheduleState {
        paused: true,
        ..ScheduleState::default()
    };
    assert!(play(&table, &mut state, hour(3)).is_empty());
    assert_eq!((state.done.next, state.done.missed), (None, 0));
    // Nobody was there while it was paused and resumed.
    let owed_from = hour(6).after(MINUTE);
    state = ScheduleState {
        paused: false,
        owed_from,
        ..state
    };
    let seen = hour(7).after(30 * MINUTE);
    assert_eq!(play(&table, &mut state, seen), [hour(7)]);
    assert_eq!(state.done.next, Some(hour(8)));
}

#[test]
fn fa_20_what_is_asked_for_is_started_also_if_the_schedule_is_paused() {
    let asked = [
        ("a".to_owned(), Asked::Now(hour(9))),
        ("b".to_owned(), Asked::Range(hour(1), hour(3))),
    ];
    let mut state = ScheduleState {
        paused: true,
        asked: asked.into(),
        ..ScheduleState::default()
    };
    let table = Timetable {
        overlap: Overlap::Allow,
        ..hourly()
    };
    let planned = pass(&table, &state, hour(9)).unwrap();
    assert_eq!(planned.answered, ["a", "b"]);
    let keys: Vec<String> = planned.starts.iter().map(|tick| tick.key("it")).collect();
    let range = ["01", "02", "03"].map(|hour| format!("it@2026-01-01T{hour}:00:00Z"));
    assert_eq!(keys, [&["it!a".to_owned()][..], &range].concat());
    // One after the other, where runs may not overlap.
    let started = play(&hourly(), &mut state, hour(9));
    assert_eq!((started, state.done.waiting.len()), (vec![hour(9)], 3));
}

#[test]
fn fa_20_a_range_of_the_past_is_bounded() {
    let asked = Asked::Range(at("2020-01-01T00:00:00Z"), at("2025-01-01T00:00:00Z"));
    let asked = [("it".to_owned(), asked)].into();
    let state = ScheduleState {
        asked,
        ..ScheduleState::default()
    };
    let table = Timetable {
        overlap: Overlap::Allow,
        ..hourly()
    };
    let planned = pass(&table, &state, hour(1)).unwrap();
    let asked = planned
        .starts
        .iter()
        .filter(|tick| tick.cause == Reason::Asked);
    assert!(asked.count() <= limits::MADE_UP);
}

#[test]
fn fa_20_a_start_that_is_refused_lets_the_next_begin() {
    let (table, mut state) = (hourly(), ScheduleState::default());
    let planned = pass(&table, &state, hour(1)).unwrap();
    state.done = planned.begun(&[Begun::Refused]);
    assert_eq!(told(&state), [(What::Refused, hour(1))]);
    assert_eq!(play(&table, &mut state, hour(2)), [hour(2)]);
    for at in 3..100 {
        play(&table, &mut state, hour(at));
    }
    assert_eq!(state.done.recent.len(), limits::REMEMBERED);
}

#[test]
fn fa_20_a_state_that_people_patched_before_anybody_looked_is_understood() {
    let state: ScheduleState = serde_json::from_str(r#"{"paused":true}"#).unwrap();
    assert!(state.paused && !state.asks_as(&ScheduleState::default()));
    let text = serde_json::to_string(&hourly()).unwrap();
    let patched = format!(r#"{{"timetable":[{text}]}}"#);
    let state: ScheduleState = serde_json::from_str(&patched).unwrap();
    let other = Timetable {
        overlap: Overlap::Allow,
        ..hourly()
    };
    assert_eq!(state.timetable(&other), &hourly());
    let later = Timetable {
        since: hour(9),
        ..hourly()
    };
    assert!(later.says_as(&hourly()) && !later.says_as(&other));
}
