//! Times for people: when, and how long ago.

use std::time::Duration;

use roundel::{Calendar, Timestamp, Timetable};

/// A span in its two largest units at most: `2 d 3 h`, `14 ms`.
#[must_use]
pub fn span(span: Duration) -> String {
    let (seconds, millis) = (span.as_secs(), span.as_millis());
    let two = |large: u64, unit: &str, small: u64, below: &str| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {below}"),
    };
    match seconds {
        0 if millis == 0 => format!("{} us", span.as_micros()),
        0 => format!("{millis} ms"),
        1..10 => format!("{}.{} s", seconds, span.subsec_millis() / 100),
        10..60 => format!("{seconds} s"),
        60..3600 => two(seconds / 60, "min", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

/// A span in one unit, for a narrow column: `3 d`, `14 min`.
#[must_use]
pub fn short(of: Duration) -> String {
    let seconds = of.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// `3 min ago`, or `in 3 min`.
#[must_use]
pub fn from_now(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("in {}", span(at.since(now)))
    } else {
        format!("{} ago", span(now.since(at)))
    }
}

/// Date and time, UTC, with how long ago.
#[must_use]
pub fn both(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", utc(at), from_now(at, now))
}

/// Date and time, UTC.
#[must_use]
pub fn utc(at: Timestamp) -> String {
    let seconds = at.0.div_euclid(1_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// When, in words.
#[must_use]
pub fn words(timetable: &Timetable) -> String {
    match &timetable.calendar {
        Calendar::Every(every) => format!("every {}", span(*every)),
        calendar => calendar.words(),
    }
}

/// Year, month and day of a day since 1970 in the Gregorian calendar (Hinnant's algorithm).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let part = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * part + 2) / 5 + 1;
    let month = if part < 10 { part + 3 } else { part - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_200, "2024-03-01 00:00:00 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(utc(Timestamp(seconds * 1_000_000)), text);
        }
        assert!(utc(Timestamp::MAX).starts_with("294247-01-10"));
    }

    #[test]
    fn spans_are_short() {
        for (millis, text) in [
            (0, "0 us"),
            (14, "14 ms"),
            (1_250, "1.2 s"),
            (59_999, "59 s"),
            (61_000, "1 min 1 s"),
            (7_200_000, "2 h"),
            (180_000_000, "2 d 2 h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
    }
}
