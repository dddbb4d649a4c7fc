//! The order of commits, kept in objects. A record is one commit; it is made once, under the next
//! number, and never changed: so whoever makes it has committed, and whoever comes second has not.
//!
//! Records stand in volumes. A volume that became long is closed by its last record; the next one
//! begins with everything there was. Only then may the records of the closed one go. Somebody who
//! slept meanwhile could make a record again that was removed: that is why a mark stays for each
//! closed volume, and why nobody believes in the end of a volume, or in a record of his own, before
//! he has seen that there is no such mark.
//!
//! The order of calls is what makes it hold: append first, then acknowledge, then remove.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::Objects;
use super::content::Content;
use super::record::Record;

/// Between two looks at what somebody else is about to make.
const PAUSE: Duration = Duration::from_millis(2);

/// A place in the order of commits, and what there was at it.
pub(super) struct Book {
    objects: Arc<dyn Objects>,
    /// Where this process is: nothing, until it has read the beginning of a volume.
    at: Option<Place>,
    content: Content,
    /// Were there commits of others?
    news: bool,
    /// How long somebody who said he makes the next record is waited for.
    patience: Duration,
    /// A volume is closed when it has so many bytes, and as many as what it began with.
    long: usize,
}

struct Place {
    volume: u64,
    /// Records of the volume that are known.
    number: u64,
    ids: Vec<Uuid>,
    /// How much they are, and what came before them.
    bytes: usize,
    began_with: usize,
}

/// What became of a record.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum Appended {
    /// It is there.
    Yes,
    /// It is not, and never will be: somebody else was faster.
    No,
    /// It was made, and this process slept for so long that nobody can tell any more whether that
    /// was in time.
    Perhaps,
}

impl Place {
    fn begins(volume: u64, began_with: usize) -> Place {
        Place {
            volume,
            number: 0,
            ids: Vec::new(),
            bytes: 0,
            began_with,
        }
    }

    fn record(&self) -> String {
        format!("records/{:012}/{:012}", self.volume, self.number + 1)
    }

    fn lock(&self) -> String {
        format!("locks/{:012}-{:012}", self.volume, self.number + 1)
    }

    fn passed(&mut self, id: Uuid, bytes: usize) {
        self.number += 1;
        self.ids.push(id);
        self.bytes += bytes;
    }
}

fn beginning(volume: u64) -> String {
    format!("beginnings/{volume:012}")
}

fn closed(volume: u64) -> String {
    format!("closed/{volume:012}")
}

impl Book {
    pub(super) fn new(objects: Arc<dyn Objects>, patience: Duration, long: usize) -> Book {
        Book {
            objects,
            at: None,
            content: Content::default(),
            news: false,
            patience,
            long,
        }
    }

    /// What there is at this place.
    pub(super) fn content(&mut self) -> &mut Content {
        &mut self.content
    }

    /// What is in memory is not to be believed any more.
    pub(super) fn forget(&mut self) {
        self.at = None;
    }

    /// Has anything of others been read since the last time?
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Reads what others committed.
    pub(super) fn catch_up(&mut self) -> io::Result<()> {
        loop {
            let Some(at) = &mut self.at else {
                self.open()?;
                self.news = true;
                continue;
            };
            let key = at.record();
            if let Some(bytes) = self.objects.get(&key)? {
                self.news = true;
                let record = Record::decode(&key, &bytes)?;
                if record.closes {
                    self.turn()?;
                    continue;
                }
                at.passed(record.id, bytes.len());
                self.content.absorb(record);
                continue;
            }
            if self.objects.get(&closed(at.volume))?.is_none() {
                return Ok(());
            }
            self.forget();
        }
    }

    /// Says that this process makes the next record, unless another one said so and does it in
    /// time. Nothing depends on it but that work is not done in vain.
    pub(super) fn lock(&mut self) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let at = self.at.as_ref().expect("it has caught up");
            if self.objects.make(&at.lock(), b"")? || began.elapsed() >= self.patience {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
            self.catch_up()?;
        }
    }

    /// The record was made, or another one, or none is needed: the next may go on.
    pub(super) fn unlock(&mut self, lock: &str) {
        // Who cannot be told waits for a while, once.
        let _ = self.objects.remove(lock);
    }

    /// What [`Book::lock`] has made, or found.
    pub(super) fn lock_key(&self) -> String {
        self.at.as_ref().expect("it has caught up").lock()
    }

    /// Makes the next record, of what was decided over this content. When that fails, whether it
    /// is there is not known; asking again is harmless.
    pub(super) fn append(&mut self, record: &Record) -> io::Result<Appended> {
        let at = self.at.as_mut().expect("it has caught up");
        let (key, bytes) = (at.record(), record.encode());
        if !self.objects.make(&key, &bytes)? {
            let there = self.objects.get(&key)?;
            let there = there
                .map(|bytes| Record::decode(&key, &bytes))
                .transpose()?;
            // What was removed meanwhile belongs to a volume that is closed.
            if there.is_some_and(|there| there.id != record.id) {
                return Ok(Appended::No);
            }
        }
        if self.objects.get(&closed(at.volume))?.is_none() {
            at.passed(record.id, bytes.len());
            return Ok(Appended::Yes);
        }
        let volume = at.volume;
        let appended = self.is_in(volume, record.id)?;
        self.forget();
        Ok(appended)
    }

    /// Was it made before that volume was closed, or in the place of one that had been removed?
    fn is_in(&self, volume: u64, id: Uuid) -> io::Result<Appended> {
        let key = beginning(volume + 1);
        let Some(bytes) = self.objects.get(&key)? else {
            return Ok(Appended::Perhaps);
        };
        let known = Record::decode(&key, &bytes)?.before.contains(&id);
        Ok(if known { Appended::Yes } else { Appended::No })
    }

    /// Closes the volume if it became long.
    pub(super) fn close_if_long(&mut self) -> io::Result<()> {
        let Some(at) = &self.at else { return Ok(()) };
        if at.bytes < at.began_with.max(self.long) {
            return Ok(());
        }
        let last = Record {
            id: Uuid::new_v4(),
            closes: true,
            ..Record::default()
        };
        self.objects.make(&at.record(), &last.encode())?;
        // Somebody may have made another record instead.
        self.catch_up()
    }

    /// From a closed volume to the next: what it begins with is made, by whoever comes first.
    fn turn(&mut self) -> io::Result<()> {
        let at = self.at.as_ref().expect("its end was read");
        let (volume, before) = (at.volume, at.ids.clone());
        let first = Record {
            before,
            ..self.content.all()
        };
        let bytes = first.encode();
        self.objects.make(&beginning(volume + 1), &bytes)?;
        self.objects.make(&closed(volume), b"")?;
        self.at = Some(Place::begins(volume + 1, bytes.len()));
        self.tidy(volume);
        Ok(())
    }

    /// Removes what no one needs any more: records up to that volume, and what it began with. What
    /// the next one began with stays as long as somebody may ask whether his record is in it.
    fn tidy(&self, volume: u64) {
        let end = format!("records/{:012}/", volume + 1);
        let first = beginning(volume);
        let locks = format!("locks/{:012}", volume + 1);
        for (prefix, end) in [("records/", end), ("beginnings/", first), ("locks/", locks)] {
            let keys = self.objects.list(prefix).unwrap_or_default();
            for key in keys.into_iter().filter(|key| *key < end) {
                // What cannot be removed now is removed with the next volume.
                let _ = self.objects.remove(&key);
            }
        }
    }

    /// Reads the beginning of the last volume.
    fn open(&mut self) -> io::Result<()> {
        self.content = Content::default();
        let keys = self.objects.list("beginnings/")?;
        let last = keys.iter().filter_map(|key| {
            let number = key.strip_prefix("beginnings/")?;
            number.parse::<u64>().ok()
        });
        let Some(volume) = last.max() else {
            self.at = Some(Place::begins(0, 0));
            return Ok(());
        };
        let key = beginning(volume);
        // Gone: there is a later one. The next look finds it.
        if let Some(bytes) = self.objects.get(&key)? {
            let first = Record::decode(&key, &bytes)?;
            self.at = Some(Place::begins(volume, bytes.len()));
            self.content.absorb(first);
        }
        Ok(())
    }
}
