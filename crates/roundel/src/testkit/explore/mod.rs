//! Exploring: a test is played again and again, and each time something else goes wrong. First
//! nothing; then each fault at each place, alone; then pairs, if they are asked for; then several
//! at once, drawn from a seed. The first failure is told, with the fewest faults that bring it.
//!
//! The worker and the client are the real ones, over rows in memory, on a runtime with one thread
//! and virtual time. So a play is the same each time, and a millisecond long.
//!
//! Absent on purpose: threads and SQLite's own faults. Real kills and failing disks are tested
//! elsewhere, once for everybody.

mod hush;
mod play;
mod points;
mod schedule;
mod told;
mod words;

use std::fmt;
use std::future::Future;
use std::time::{Duration, Instant};

use self::play::{Played, play};
use self::schedule::{Places, Schedule};

pub use play::{Verdict, World};
pub(super) use points::Points;
pub(super) use schedule::Kind;
pub use told::Broken;

/// What to replay, in the environment.
const SEED: &str = "ROUNDEL_SEED";
/// Drawn schedules, unless said.
const DRAWN: u64 = 1_000;
/// How long it may take, unless said.
const LIMIT: Duration = Duration::from_secs(60);

/// Plays this test with everything going wrong that can: see [`Exploration`].
///
/// ```
/// use roundel::testkit::explore;
/// use roundel::{Cx, EngineBuilder, Failure, Result, Workflow};
///
/// const GREET: Workflow<String, String> = Workflow::named("greet");
///
/// async fn greet(cx: Cx, name: String) -> Result<String> {
///     cx.effect("greet", |_| async { Ok::<_, Failure>(format!("hello {name}")) }).await
/// }
///
/// fn app(engine: EngineBuilder) -> EngineBuilder {
///     engine.register(GREET, greet)
/// }
///
/// let report = explore(|world| async move {
///     let kit = world.open(app).await;
///     let mut run = kit.start(GREET, &"Ada".to_owned()).await?;
///     assert_eq!(run.result().await?, "hello Ada");
///     Ok::<_, roundel::Error>(())
/// })
/// .schedules(100)
/// .run();
/// assert!(report.crashes > 0);
/// ```
pub fn explore<F, Fut>(scenario: F) -> Exploration<F>
where
    F: Fn(World) -> Fut + Sync,
    Fut: Future,
    Fut::Output: Verdict,
{
    Exploration {
        scenario,
        drawn: DRAWN,
        seed: 0,
        only: None,
        pairs: 0,
        processes: 1,
        limit: LIMIT,
    }
}

/// An exploration, to be run: of a function that opens an application in a [`World`], uses it, and
/// says whether all is well, by a panic or an error if not.
#[must_use = "it does nothing until run"]
pub struct Exploration<F> {
    scenario: F,
    drawn: u64,
    seed: u64,
    only: Option<String>,
    pairs: u64,
    processes: usize,
    limit: Duration,
}

impl<F> fmt::Debug for Exploration<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exploration").finish_non_exhaustive()
    }
}

/// What was explored, when nothing was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Schedules that were played, the one without faults among them.
    pub schedules: u64,
    /// Requests that processes make to the store when nothing goes wrong.
    pub commit_points: u32,
    /// Attempts of effects that they make then, and that can fail without being the last.
    pub attempts: u32,
    /// Faults that struck.
    pub faults: u64,
    /// Processes that crashed.
    pub crashes: u64,
    /// Time was up before all schedules were played.
    pub cut_short: bool,
}

impl<F, Fut> Exploration<F>
where
    F: Fn(World) -> Fut + Sync,
    Fut: Future,
    Fut::Output: Verdict,
{
    /// So many schedules with several faults are drawn; 1,000 unless said.
    pub fn schedules(mut self, drawn: u64) -> Self {
        self.drawn = drawn;
        self
    }

    /// What they are drawn from.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Only this schedule: what a failure has printed as `ROUNDEL_SEED`.
    pub fn only(mut self, schedule: impl Into<String>) -> Self {
        self.only = Some(schedule.into());
        self
    }

    /// Also two faults after each other, at all places, up to so many schedules.
    pub fn pairs(mut self, most: u64) -> Self {
        self.pairs = most;
        self
    }

    /// So many processes work over the same database; one unless said.
    pub fn processes(mut self, processes: usize) -> Self {
        self.processes = processes.max(1);
        self
    }

    /// No new schedule is begun after this long; a minute unless said.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Explores.
    ///
    /// # Panics
    /// When a schedule breaks the test: the message is that of [`Broken`].
    #[track_caller]
    pub fn run(self) -> Report {
        match self.find() {
            Ok(report) => report,
            Err(broken) => panic!("{broken}"),
        }
    }

    /// Explores, and returns what was found.
    ///
    /// # Errors
    /// With the first schedule that breaks the test, with as few faults as bring it.
    ///
    /// # Panics
    /// When `ROUNDEL_SEED`, or what was given to `only`, is not a schedule.
    pub fn find(mut self) -> Result<Report, Broken> {
        if let Ok(said) = std::env::var(SEED) {
            match said.parse() {
                Ok(seed) => self.seed = seed,
                Err(_) => self.only = Some(said),
            }
        }
        let name = std::thread::current().name().map(str::to_owned);
        let name = name.filter(|name| name != "main");
        // A thread of its own: a runtime cannot be started inside another.
        let searched = std::thread::scope(|scope| {
            let search = || {
                let _hushed = hush::hush();
                Search::new(&self).all()
            };
            match scope.spawn(search).join() {
                Ok(searched) => searched,
                // Said again on this thread, where panics are printed.
                Err(panic) => match panic.downcast_ref::<String>() {
                    Some(text) => panic!("{text}"),
                    None => std::panic::resume_unwind(panic),
                },
            }
        });
        searched.map_err(|(played, report)| Broken::new(played, report, name))
    }
}

/// A play that is broken, and what was explored before.
type Found = (Box<Played>, Report);

struct Search<'a, F> {
    how: &'a Exploration<F>,
    began: Instant,
    report: Report,
    /// What a play without faults comes to.
    plain: Places,
    /// Runs that are parked without any fault.
    parked: usize,
}

impl<'a, F, Fut> Search<'a, F>
where
    F: Fn(World) -> Fut + Sync,
    Fut: Future,
    Fut::Output: Verdict,
{
    fn new(how: &'a Exploration<F>) -> Self {
        Search {
            how,
            began: Instant::now(),
            report: Report::default(),
            plain: Places::default(),
            parked: usize::MAX,
        }
    }

    fn all(mut self) -> Result<Report, Found> {
        if let Some(only) = &self.how.only {
            let schedule: Schedule = only.parse().unwrap_or_else(|error| panic!("{error}"));
            self.try_one(&schedule)?;
            return Ok(self.report);
        }
        self.plainly()?;
        let firsts = self.singles()?;
        self.pairs(&firsts)?;
        self.drawn()?;
        Ok(self.report)
    }

    fn time_is_up(&mut self) -> bool {
        let up = self.began.elapsed() >= self.how.limit;
        self.report.cut_short |= up;
        up
    }

    fn play(&mut self, schedule: &Schedule) -> Played {
        let how = self.how;
        let mut played = play(&how.scenario, schedule, how.processes);
        self.report.schedules += 1;
        self.report.faults += u64::from(played.struck);
        self.report.crashes += u64::from(played.crashes);
        if played.verdict.is_ok() && played.parked.len() > self.parked {
            let parked = played.parked.join("\n");
            played.verdict = Err(format!(
                "a run is parked that is not without faults: {parked}"
            ));
        }
        played
    }

    fn try_one(&mut self, schedule: &Schedule) -> Result<Played, Found> {
        let played = self.play(schedule);
        match played.verdict {
            Ok(()) => Ok(played),
            Err(_) => Err((Box::new(played), self.report)),
        }
    }

    /// Without faults, twice: it must be the same.
    fn plainly(&mut self) -> Result<(), Found> {
        let none = Schedule::default();
        let first = self.try_one(&none)?;
        let mut again = self.try_one(&none)?;
        if let Some(differs) = told::difference(&first.lines, &again.lines) {
            again.verdict = Err(differs);
            return Err((Box::new(again), self.report));
        }
        self.plain = first.places;
        self.parked = first.parked.len();
        self.report.commit_points = first.places.requests;
        self.report.attempts = first.places.attempts;
        Ok(())
    }

    /// Each fault at each place. Returns what each play came to.
    fn singles(&mut self) -> Result<Vec<(Schedule, Places)>, Found> {
        let mut firsts = Vec::new();
        for fault in self.plain.singles(Places::default()) {
            if self.time_is_up() {
                break;
            }
            let schedule = Schedule::default().and(fault);
            let played = self.try_one(&schedule)?;
            firsts.push((schedule, played.places));
        }
        Ok(firsts)
    }

    /// After each first fault, each second one, at the places that the play comes to then.
    fn pairs(&mut self, firsts: &[(Schedule, Places)]) -> Result<(), Found> {
        let mut left = self.how.pairs;
        for (schedule, places) in firsts {
            let mut before = Places::default();
            for fault in &schedule.0 {
                *before.of(fault.kind.place()) = fault.at;
            }
            for fault in places.singles(before) {
                if left == 0 || self.time_is_up() {
                    return Ok(());
                }
                left -= 1;
                self.try_one(&schedule.and(fault))?;
            }
        }
        Ok(())
    }

    fn drawn(&mut self) -> Result<(), Found> {
        for number in 0..self.how.drawn {
            if self.time_is_up() {
                break;
            }
            let seed = self.how.seed.wrapping_mul(0x9e37_79b9).wrapping_add(number);
            let schedule = Schedule::drawn(seed, self.plain);
            if let Err((played, _)) = self.try_one(&schedule) {
                let played = self.shorten(played);
                return Err((played, self.report));
            }
        }
        Ok(())
    }

    /// Leaves out what is not needed to break it.
    fn shorten(&mut self, mut broken: Box<Played>) -> Box<Played> {
        loop {
            let shorter: Vec<Schedule> = broken.schedule.shorter().collect();
            let found = shorter.iter().find_map(|schedule| {
                let played = self.play(schedule);
                played.verdict.is_err().then_some(played)
            });
            match found {
                Some(found) => *broken = found,
                None => return broken,
            }
        }
    }
}
