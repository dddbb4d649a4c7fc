//! A schedule: which faults strike where. It is a value that can be written down and read again,
//! so the line that replays a failure says what it does: `after7-lost2`.

use std::fmt;
use std::str::FromStr;

/// What goes wrong at a place. Places of one kind are counted from 1, in the order in which a play
/// comes to them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// The process crashes with its request on the way: nothing of it was committed.
    Before,
    /// The process crashes when its request is committed, before it hears of it.
    After,
    /// The request is committed, and the process is told that nobody knows.
    Unknown,
    /// The request is not committed, and the process is told so.
    Refused,
    /// The answer comes late, after those to later requests.
    Late,
    /// The process stands still for longer than a lease, from this request on.
    Stall,
    /// An attempt of an effect fails before anything was called.
    Fails,
    /// An attempt of an effect does its work, and its answer is lost.
    Lost,
    /// A hint does not arrive: what it was about is found by a sweep.
    Hint,
}

/// Kinds of places.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    /// A request of a process to the store.
    Request,
    /// An attempt of an effect that is not the last.
    Attempt,
    /// Hints that a process is given.
    Hints,
}

impl Kind {
    const ALL: [Kind; 9] = [
        Kind::Before,
        Kind::After,
        Kind::Unknown,
        Kind::Refused,
        Kind::Late,
        Kind::Stall,
        Kind::Fails,
        Kind::Lost,
        Kind::Hint,
    ];

    fn word(self) -> &'static str {
        match self {
            Kind::Before => "before",
            Kind::After => "after",
            Kind::Unknown => "unknown",
            Kind::Refused => "refused",
            Kind::Late => "late",
            Kind::Stall => "stall",
            Kind::Fails => "fails",
            Kind::Lost => "lost",
            Kind::Hint => "hint",
        }
    }

    pub(crate) fn place(self) -> Place {
        match self {
            Kind::Fails | Kind::Lost => Place::Attempt,
            Kind::Hint => Place::Hints,
            _ => Place::Request,
        }
    }

    /// How hard it is to understand what it does.
    fn rank(self) -> u32 {
        match self {
            Kind::Before | Kind::After => 0,
            Kind::Fails | Kind::Lost => 1,
            Kind::Unknown | Kind::Refused => 2,
            Kind::Late => 3,
            Kind::Stall => 4,
            Kind::Hint => 5,
        }
    }

    pub(crate) fn is_crash(self) -> bool {
        matches!(self, Kind::Before | Kind::After)
    }
}

/// How many places of each kind a play came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Places {
    pub(crate) requests: u32,
    pub(crate) attempts: u32,
    pub(crate) hints: u32,
}

impl Places {
    pub(crate) fn of(&mut self, place: Place) -> &mut u32 {
        match place {
            Place::Request => &mut self.requests,
            Place::Attempt => &mut self.attempts,
            Place::Hints => &mut self.hints,
        }
    }

    /// Every fault at every place after these: first those that are easiest to understand, of these
    /// the early ones.
    pub(crate) fn singles(mut self, mut after: Places) -> Vec<Fault> {
        let mut all = Vec::new();
        for kind in Kind::ALL {
            let first = *after.of(kind.place()) + 1;
            let last = *self.of(kind.place());
            all.extend((first..=last).map(|at| Fault { kind, at }));
        }
        all.sort_by_key(|fault| (fault.kind.rank(), fault.at));
        all
    }
}

/// One fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// At which place of its kind.
    pub(crate) at: u32,
}

/// Which faults strike where.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Schedule(pub(crate) Vec<Fault>);

/// Crashes of one schedule: a run that is there at more of them, and commits nothing in between, is
/// parked, and rightly.
const CRASHES: usize = 3;
/// Faults of one schedule.
const FAULTS: u64 = 5;

impl Schedule {
    /// A few faults, drawn, for a play that comes to about so many places.
    pub(crate) fn drawn(seed: u64, mut places: Places) -> Schedule {
        let mut draw = Draw(seed);
        let mut schedule = Schedule::default();
        for _ in 0..1 + draw.below(FAULTS) {
            let index = usize::try_from(draw.below(Kind::ALL.len() as u64)).unwrap_or(0);
            let kind = Kind::ALL[index];
            // Faults bring a play to more places than it comes to without.
            let places = u64::from(*places.of(kind.place()));
            if places > 0 {
                let at = u32::try_from(1 + draw.below(places + places / 2)).unwrap_or(1);
                schedule.add(Fault { kind, at });
            }
        }
        schedule
    }

    fn add(&mut self, fault: Fault) {
        let crashes = self.0.iter().filter(|fault| fault.kind.is_crash()).count();
        let same = |known: &Fault| (known.kind.place(), known.at) == (fault.kind.place(), fault.at);
        let too_many = fault.kind.is_crash() && crashes >= CRASHES;
        if !too_many && !self.0.iter().any(same) {
            self.0.push(fault);
            self.0.sort_by_key(|fault| (fault.at, fault.kind));
        }
    }

    /// This one, and another fault.
    pub(crate) fn and(&self, fault: Fault) -> Schedule {
        let mut both = self.clone();
        both.add(fault);
        both
    }

    /// What strikes there.
    pub(crate) fn at(&self, place: Place, at: u32) -> Option<Kind> {
        let here = |fault: &&Fault| fault.kind.place() == place && fault.at == at;
        self.0.iter().find(here).map(|fault| fault.kind)
    }

    /// Each schedule that has one fault less.
    pub(crate) fn shorter(&self) -> impl Iterator<Item = Schedule> {
        (0..self.0.len()).map(|index| {
            let mut shorter = self.clone();
            shorter.0.remove(index);
            shorter
        })
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (index, fault) in self.0.iter().enumerate() {
            let between = if index == 0 { "" } else { "-" };
            write!(f, "{between}{}{}", fault.kind.word(), fault.at)?;
        }
        Ok(())
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Schedule, String> {
        let mut schedule = Schedule::default();
        for part in text.split('-').filter(|_| text != "none") {
            let digits = part
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(part.len());
            let (word, at) = part.split_at(digits);
            let kind = Kind::ALL.into_iter().find(|kind| kind.word() == word);
            let fault = kind
                .zip(at.parse().ok())
                .map(|(kind, at)| Fault { kind, at });
            schedule.0.push(fault.ok_or_else(|| {
                let words: Vec<_> = Kind::ALL.map(Kind::word).into();
                format!(
                    "`{part}` is not a fault; a schedule is a list such as `after7-lost2`, of {}, \
                     each with a number",
                    words.join(", ")
                )
            })?);
        }
        Ok(schedule)
    }
}

/// Numbers drawn from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        crate::testkit::script::drawn(&mut self.0) % limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: Places = Places {
        requests: 4,
        attempts: 2,
        hints: 1,
    };

    #[test]
    fn a_schedule_is_read_as_it_was_written() {
        for seed in 0..1000 {
            let schedule = Schedule::drawn(seed, PLACES);
            assert_eq!(schedule.to_string().parse(), Ok(schedule));
        }
        let error = "after7-bang3"
            .parse::<Schedule>()
            .expect_err("no such fault");
        assert!(error.contains("`bang3` is not a fault"), "{error}");
        assert!("after".parse::<Schedule>().is_err());
    }

    #[test]
    fn every_fault_is_tried_at_every_place_crashes_and_early_ones_first() {
        let all = PLACES.singles(Places::default());
        assert_eq!(all.len(), 4 * 6 + 2 * 2 + 1);
        assert!(all[..8].iter().all(|fault| fault.kind.is_crash()));
        assert!(all[..8].windows(2).all(|two| two[0].at <= two[1].at));
        let later = PLACES.singles(Places {
            requests: 3,
            attempts: 2,
            hints: 0,
        });
        assert_eq!(later.len(), 6 + 1);
    }

    #[test]
    fn no_place_has_two_faults_and_no_schedule_too_many_crashes() {
        for seed in 0..1000 {
            let Schedule(faults) = Schedule::drawn(seed, PLACES);
            let crashes = faults.iter().filter(|fault| fault.kind.is_crash()).count();
            assert!(crashes <= CRASHES);
            let mut places: Vec<_> = faults.iter().map(|f| (f.kind.place(), f.at)).collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), faults.len(), "{faults:?}");
        }
    }
}
