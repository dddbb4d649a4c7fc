//! A disk that fails on demand, and loses what was not synced when its power goes.
//!
//! Every change that SQLite makes to a file has a number, and every read. A plan says what happens
//! at one of them. For each file the disk knows what was synced and what came after; when the power
//! goes, each of the later changes is kept, lost, or torn, sector by sector, as the seed wills.

mod shim;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::ffi;

const SECTOR: usize = 512;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nothing.
    Well,
    /// So many changes fail, from this one on.
    Errors { from: u64, count: u64, how: How },
    /// So many reads by these threads fail, from this one on.
    Reads { from: u64, count: u64, by: By },
    /// From this one on nothing reaches the disk.
    PowerLoss { at: u64 },
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Those who write: the store's writer, and whoever opens a file.
    Writers,
    /// The store's readers, which answer queries.
    Readers,
    /// Threads of the store that look at a file when they like.
    Others,
}

impl By {
    /// Readers come and go as they like; without them a change has the same number each time.
    fn this_thread() -> By {
        match std::thread::current().name() {
            Some("roundel-reader") => By::Readers,
            Some("roundel-watcher" | "roundel-patience") => By::Others,
            _ => By::Writers,
        }
    }
}

/// What SQLite did when something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Write,
    Sync,
    Truncate,
    Open,
    Delete,
    Read,
}

/// How a change fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Without any effect.
    Error,
    /// After a half of it was written.
    Torn,
    /// After all of it was written.
    Late,
    /// There is no room; what needs none goes on.
    Full,
}

/// What SQLite does to a file.
pub(super) enum Act<'a> {
    Open,
    Write(usize, &'a [u8]),
    Truncate(usize),
    Sync,
    /// Is the folder synced?
    Delete(bool),
}

impl Act<'_> {
    fn kind(&self) -> Kind {
        match self {
            Act::Open => Kind::Open,
            Act::Write(..) => Kind::Write,
            Act::Truncate(_) => Kind::Truncate,
            Act::Sync => Kind::Sync,
            Act::Delete(_) => Kind::Delete,
        }
    }
}

/// What the file system is to do.
pub(super) enum Fate {
    Pass,
    /// Write so many bytes and fail.
    Part(usize, i32),
    Fail(i32),
}

enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write(at, new) => put(bytes, *at, new),
            Change::Truncate(length) => bytes.truncate(*length),
        }
    }
}

fn put(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    if bytes.len() < at {
        bytes.resize(at, 0);
    }
    // Copied, not filled first: that takes long in a build without optimization.
    let over = new.len().min(bytes.len() - at);
    bytes[at..at + over].copy_from_slice(&new[..over]);
    bytes.extend_from_slice(&new[over..]);
}

#[derive(Default)]
struct Content {
    /// Certainly there after a loss of power.
    synced: Vec<u8>,
    /// Perhaps there.
    since: Vec<Change>,
    /// An earlier file of this name, whose end may not have reached the disk.
    ghost: Option<Vec<u8>>,
    deleted: bool,
    /// Made since the folder was synced, which its first sync does.
    new: bool,
}

impl Content {
    fn now(&self) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        for change in &self.since {
            change.apply(&mut bytes);
        }
        bytes
    }
}

struct State {
    plan: Plan,
    changes: u64,
    /// By those who write, and by readers.
    reads: [u64; 2],
    struck: Option<Kind>,
    dead: bool,
    unreadable: bool,
    files: BTreeMap<String, Content>,
    /// What the real files should not have been.
    wrong: Vec<String>,
}

/// The disk under one folder.
pub(crate) struct Disk {
    folder: PathBuf,
    state: Mutex<State>,
}

/// A disk that is there until this is dropped.
pub(crate) struct Mounted(Arc<Disk>);

impl Drop for Mounted {
    fn drop(&mut self) {
        shim::unmount(&self.0.folder);
    }
}

impl std::ops::Deref for Mounted {
    type Target = Disk;

    fn deref(&self) -> &Disk {
        &self.0
    }
}

impl Disk {
    /// A disk for the files of this folder, which is empty.
    pub(crate) fn mount(folder: &Path, plan: Plan) -> Mounted {
        let disk = Arc::new(Disk {
            folder: folder.to_owned(),
            state: Mutex::new(State {
                plan,
                changes: 0,
                reads: [0; 2],
                struck: None,
                dead: false,
                unreadable: false,
                files: BTreeMap::new(),
                wrong: Vec::new(),
            }),
        });
        shim::mount(folder, &disk);
        Mounted(disk)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many changes there were.
    pub(crate) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// How many reads by those who write there were.
    pub(crate) fn reads(&self) -> u64 {
        self.lock().reads[By::Writers as usize]
    }

    /// What the plan came to pass at, if it did.
    pub(crate) fn struck(&self) -> Option<Kind> {
        self.lock().struck
    }

    /// Of the reads by readers from now on, this one will fail.
    pub(crate) fn fail_lookup(&self, number: u64) {
        let mut state = self.lock();
        state.struck = None;
        state.plan = Plan::Reads {
            from: state.reads[By::Readers as usize] + number,
            count: 1,
            by: By::Readers,
        };
    }

    /// From now on all is well.
    pub(crate) fn mend(&self) {
        self.lock().plan = Plan::Well;
    }

    /// The power goes now.
    pub(crate) fn cut(&self) {
        let mut state = self.lock();
        self.compare(&mut state);
        state.dead = true;
    }

    /// From now on, or no longer, nothing can be read.
    pub(crate) fn fail_reads(&self, fail: bool) {
        self.lock().unreadable = fail;
    }

    /// A read, and whether it fails.
    pub(super) fn fails_read(&self) -> bool {
        let mut state = self.lock();
        let who = By::this_thread();
        let number = state.reads.get(who as usize).copied();
        if let Some(count) = state.reads.get_mut(who as usize) {
            *count += 1;
        }
        if let Plan::Reads { from, count, by } = state.plan
            && by == who
            && number.is_some_and(|number| (from..from + count).contains(&number))
        {
            state.struck.get_or_insert(Kind::Read);
            return true;
        }
        state.dead || state.unreadable
    }

    /// Is the power gone?
    pub(crate) fn is_dead(&self) -> bool {
        self.lock().dead
    }

    /// What the real files were that they should not have been.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let mut state = self.lock();
        if !state.dead {
            self.compare(&mut state);
        }
        std::mem::take(&mut state.wrong)
    }

    /// A change to a file, and what becomes of it.
    pub(super) fn act(&self, name: &str, act: &Act<'_>) -> Fate {
        let mut state = self.lock();
        let error = code_of(act);
        if state.dead {
            return Fate::Fail(error);
        }
        let counted = By::this_thread() == By::Writers;
        let number = state.changes;
        state.changes += u64::from(counted);
        match state.plan {
            Plan::PowerLoss { at } if counted && number == at => {
                self.compare(&mut state);
                (state.struck, state.dead) = (Some(act.kind()), true);
                if let Act::Write(..) | Act::Truncate(_) = act {
                    apply(&mut state, name, act);
                }
                Fate::Fail(error)
            }
            Plan::Errors { from, count, how }
                if counted && (from..from + count).contains(&number) =>
            {
                state.struck.get_or_insert(act.kind());
                fail(&mut state, name, act, how)
            }
            _ => {
                apply(&mut state, name, act);
                Fate::Pass
            }
        }
    }

    /// The log is also written past SQLite: it may be longer than SQLite knows, and zero there.
    fn compare(&self, state: &mut State) {
        for (name, content) in &state.files {
            if !name.ends_with("-wal") || content.deleted {
                continue;
            }
            let real = std::fs::read(self.folder.join(name)).unwrap_or_default();
            let known = content.now();
            let same = real.get(..known.len()) == Some(&known[..]);
            if !same || real[known.len()..] != vec![0; real.len() - known.len()] {
                let (real, known) = (real.len(), known.len());
                let wrong = format!("{name}: {real} bytes are not the {known} that were written");
                state.wrong.push(wrong);
            }
        }
    }

    /// What is found in the folder when the power comes back.
    pub(crate) fn leave(&self, to: &Path, random: &mut Random) {
        let state = self.lock();
        let mood = random.below(4);
        for (name, content) in &state.files {
            let mut bytes = content.synced.clone();
            for change in &content.since {
                match mood {
                    0 => {}
                    1 => change.apply(&mut bytes),
                    _ => tear(&mut bytes, change, random),
                }
            }
            if name.ends_with("-wal") {
                self.leave_zeros(name, &mut bytes, random);
            }
            let ghost = content.ghost.as_ref().filter(|_| random.below(2) == 0);
            match (content.deleted, ghost) {
                (_, Some(ghost)) => std::fs::write(to.join(name), ghost).unwrap(),
                (false, None) => std::fs::write(to.join(name), bytes).unwrap(),
                (true, None) => {}
            }
        }
    }

    /// Of the zeros behind the log, all, some or none are there; or what lay there before them.
    fn leave_zeros(&self, name: &str, bytes: &mut Vec<u8>, random: &mut Random) {
        let real = std::fs::metadata(self.folder.join(name)).map_or(0, |file| file.len());
        let ahead = usize::try_from(real).unwrap().saturating_sub(bytes.len());
        let some = usize::try_from(random.below(ahead as u64 + 1)).unwrap();
        match random.below(4) {
            0 => {}
            1 => bytes.resize(bytes.len() + ahead, 0),
            2 => bytes.resize(bytes.len() + some, 0),
            _ => {
                let from = bytes.len();
                bytes.resize(from + some, 0);
                for sector in bytes[from..].chunks_mut(SECTOR) {
                    if random.below(8) == 0 {
                        sector.fill_with(|| random.byte());
                    }
                }
            }
        }
    }
}

/// What SQLite's own file system says when this goes wrong.
fn code_of(act: &Act<'_>) -> i32 {
    match act {
        Act::Open => ffi::SQLITE_CANTOPEN,
        Act::Write(..) => ffi::SQLITE_IOERR_WRITE,
        Act::Truncate(_) => ffi::SQLITE_IOERR_TRUNCATE,
        Act::Sync => ffi::SQLITE_IOERR_FSYNC,
        Act::Delete(_) => ffi::SQLITE_IOERR_DELETE,
    }
}

fn fail(state: &mut State, name: &str, act: &Act<'_>, how: How) -> Fate {
    let error = match how {
        How::Full => ffi::SQLITE_FULL,
        _ => code_of(act),
    };
    let (at, bytes) = match act {
        Act::Write(at, bytes) => (*at, *bytes),
        _ if how == How::Full => {
            apply(state, name, act);
            return Fate::Pass;
        }
        _ => return Fate::Fail(error),
    };
    let part = match how {
        How::Error => return Fate::Fail(error),
        How::Torn | How::Full => bytes.len() / 2,
        How::Late => bytes.len(),
    };
    apply(state, name, &Act::Write(at, &bytes[..part]));
    Fate::Part(part, error)
}

fn apply(state: &mut State, name: &str, act: &Act<'_>) {
    let known = state.files.contains_key(name);
    let content = state.files.entry(name.to_owned()).or_default();
    match act {
        Act::Open => {
            content.new |= !known || content.deleted;
            content.deleted = false;
        }
        Act::Write(at, bytes) => content.since.push(Change::Write(*at, bytes.to_vec())),
        Act::Truncate(length) => content.since.push(Change::Truncate(*length)),
        Act::Sync => {
            for change in std::mem::take(&mut content.since) {
                change.apply(&mut content.synced);
            }
            if std::mem::take(&mut content.new) && !name.ends_with(".db") {
                sync_folder(state);
            }
        }
        Act::Delete(synced) => {
            *content = Content {
                ghost: Some(content.now()),
                deleted: true,
                ..Content::default()
            };
            if *synced {
                sync_folder(state);
            }
        }
    }
}

/// What was deleted does not come back.
fn sync_folder(state: &mut State) {
    for content in state.files.values_mut() {
        content.ghost = None;
    }
}

/// Each sector of a write is old, new, or (seldom) neither; a truncation happened or did not.
fn tear(bytes: &mut Vec<u8>, change: &Change, random: &mut Random) {
    match change {
        Change::Truncate(_) if random.below(2) == 0 => {}
        Change::Truncate(_) => change.apply(bytes),
        Change::Write(at, new) => {
            for (number, sector) in new.chunks(SECTOR).enumerate() {
                let at = at + number * SECTOR;
                match random.below(8) {
                    0..3 => {}
                    3..7 => put(bytes, at, sector),
                    _ => {
                        let noise: Vec<u8> = sector.iter().map(|_| random.byte()).collect();
                        put(bytes, at, &noise);
                    }
                }
            }
        }
    }
}

/// A small generator: the same seed, the same losses.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            random.below(2);
        }
        random
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }

    fn byte(&mut self) -> u8 {
        self.below(256).to_le_bytes()[0]
    }
}
