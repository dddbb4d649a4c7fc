//! Lists that are filtered by what no index knows are looked through stretch by stretch: each look
//! passes a bounded number of rows, whether they fit or not, and says where the next one begins.
//!
//! So no question takes long, however many rows there are and however few of them fit; following
//! [`Stretch::next`] until it is none finds each that fits once. What is written meanwhile before
//! the place that was reached is not seen, as with any list in pages.

/// How many rows one look passes at most.
pub const LOOK: usize = 50_000;

/// So many are passed first: they are enough for nearly every list, and to find the end of so few
/// costs nothing.
const FIRST: usize = 1_000;

/// A part of a list: what was found, and where the next look begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch<T, K> {
    /// What fits, in the list's order; there may be none of them although more come later.
    pub items: Vec<T>,
    /// Where to go on; none if there is nothing more.
    pub next: Option<K>,
}

impl<T, K> Stretch<T, K> {
    /// A page of what has a way of its own; the next begins after its last.
    pub(crate) fn of(page: crate::Page<T>, key: impl Fn(&T) -> K) -> Stretch<T, K> {
        let next = page.items.last().filter(|_| page.more).map(key);
        let items = page.items;
        Stretch { items, next }
    }

    /// The same, of other places.
    pub(crate) fn map<P>(self, place: impl Fn(K) -> P) -> Stretch<T, P> {
        Stretch {
            items: self.items,
            next: self.next.map(place),
        }
    }
}

/// A look on its way, in steps. A store finds where a step ends and what fits in it; what comes of
/// that is said here, for all stores alike.
pub(crate) struct Steps<T, K> {
    limit: usize,
    left: usize,
    before: Option<K>,
    found: Vec<T>,
    next: Option<K>,
    over: bool,
    walked: bool,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step<K> {
    /// From after this one on.
    pub(crate) before: Option<K>,
    /// So many rows.
    pub(crate) rows: usize,
    /// So many that fit are wanted, and whether there is one more.
    pub(crate) limit: usize,
}

impl<T, K: Copy> Steps<T, K> {
    pub(crate) fn new(before: Option<K>, limit: usize, look: usize) -> Steps<T, K> {
        Steps {
            limit,
            left: look.clamp(1, LOOK),
            before,
            found: Vec::new(),
            next: None,
            over: false,
            walked: false,
        }
    }

    /// The next step; none if the look is over.
    pub(crate) fn step(&self) -> Option<Step<K>> {
        let rows = match self.walked {
            true => self.left,
            false => self.left.min(FIRST),
        };
        (!self.over).then_some(Step {
            before: self.before,
            rows,
            limit: self.limit - self.found.len(),
        })
    }

    /// What the step found: those that fit and whether there is one more, and the last row of the
    /// step with the first after it, as far as there are these.
    pub(crate) fn took(&mut self, fit: crate::Page<T>, end: &[K], key: impl Fn(&T) -> K) {
        let rows = self.step().map_or(0, |step| step.rows);
        self.walked = true;
        self.found.extend(fit.items);
        let [last, _] = end else {
            self.over = true;
            self.next = self.found.last().filter(|_| fit.more).map(key);
            return;
        };
        self.left -= rows;
        self.before = Some(*last);
        self.over = fit.more || self.left == 0;
        self.next = match fit.more {
            true => self.found.last().map(key),
            false => Some(*last).filter(|_| self.over),
        };
    }

    pub(crate) fn stretch(self) -> Stretch<T, K> {
        Stretch {
            items: self.found,
            next: self.next,
        }
    }
}

/// How many of each are counted, if so many are to be counted of all of so many kinds.
pub(crate) fn share(rows: usize, kinds: usize) -> usize {
    (rows.min(LOOK) / kinds.max(1)).max(1)
}

/// The same, over rows that are in memory: by key, in order, with what they come to if they fit.
pub(crate) fn stretch<T, K: Copy>(
    rows: impl Iterator<Item = (K, Option<T>)>,
    limit: usize,
    look: usize,
) -> Stretch<T, K> {
    let (mut items, mut fits, mut passed) = (Vec::new(), None, None);
    for (walked, (key, row)) in rows.enumerate() {
        if walked == look.clamp(1, LOOK) {
            return Stretch {
                items,
                next: passed,
            };
        }
        if let Some(item) = row {
            if items.len() == limit {
                return Stretch { items, next: fits };
            }
            items.push(item);
            fits = Some(key);
        }
        passed = Some(key);
    }
    Stretch { items, next: None }
}
