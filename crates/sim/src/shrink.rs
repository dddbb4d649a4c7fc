//! A schedule that broke a promise, made short enough to read: faults are left out, clients and
//! time cut, as long as some promise is still broken.

use crate::{Played, Player};

/// What of a seed's schedule is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Requests until the faults end.
    pub(crate) requests: u64,
    /// Faults that are left out, as bits of the seed's draw.
    pub(crate) without: u64,
    /// Clients at most.
    pub(crate) clients: usize,
    /// Things that each client does at most.
    pub(crate) things: usize,
    /// Another order of the same things.
    pub(crate) order: u64,
}

/// Orders that are tried of the smallest cut.
const ORDERS: u64 = 300;

impl Default for Cut {
    fn default() -> Cut {
        Cut {
            requests: 80,
            without: 0,
            clients: usize::MAX,
            things: usize::MAX,
            order: 0,
        }
    }
}

/// The bits that stand for one kind of fault each.
const KINDS: [u64; 19] = [
    0b111,
    1 << 3,
    0b11 << 4,
    1 << 6,
    1 << 7,
    1 << 8,
    1 << 9,
    1 << 10,
    1 << 11,
    1 << 12,
    1 << 13,
    0b11 << 14,
    1 << 16,
    0b11 << 17,
    0b11 << 19,
    0b11 << 21,
    0b11 << 23,
    1 << 27,
    0b11 << 25 | 0b1_1111 << 28,
];

impl Cut {
    /// Smaller ones, the boldest first.
    fn smaller(self) -> Vec<Cut> {
        let mut all = Vec::new();
        let kinds = KINDS.iter().filter(|kind| self.without & *kind == 0);
        all.extend(kinds.map(|kind| Cut {
            without: self.without | kind,
            ..self
        }));
        let clients = self.clients.min(3);
        all.extend((1..clients).map(|clients| Cut { clients, ..self }));
        let things = self.things.min(24);
        all.extend((1..things).map(|things| Cut { things, ..self }));
        let requests = [4, 2].map(|part| self.requests / part);
        let requests = requests.into_iter().chain([self.requests * 7 / 8]);
        let requests = requests.filter(|requests| *requests < self.requests);
        all.extend(requests.map(|requests| Cut { requests, ..self }));
        all
    }
}

impl Player {
    /// The shortest schedule of this seed that was found and breaks a promise, with its trace; none
    /// if the whole one breaks none.
    #[must_use]
    pub fn shrink(&self, seed: u64) -> Option<Played> {
        let broken = |cut: Cut| {
            let played = self.guarded(seed, cut);
            (!played.violations.is_empty()).then_some((played.ops, cut))
        };
        let (mut ops, mut cut) = broken(Cut::default())?;
        loop {
            let smaller = cut.smaller().into_iter().filter_map(broken);
            let Some(shorter) = { smaller }.find(|(shorter, _)| *shorter <= ops) else {
                break;
            };
            (ops, cut) = shorter;
        }
        let orders = (0..ORDERS).map(|order| Cut { order, ..cut });
        let shortest = orders.filter_map(broken).min_by_key(|(ops, _)| *ops);
        shortest.map(|(_, cut)| self.tell(seed, cut))
    }
}

/// Ids are long and say nothing: they become numbers, in the order in which they appear.
pub(crate) fn readable(lines: Vec<String>) -> Vec<String> {
    let mut known: Vec<String> = Vec::new();
    let mut short = |line: String| {
        let mut out = String::with_capacity(line.len());
        let mut rest = line.as_str();
        while let Some(at) = id_in(rest) {
            let id = &rest[at..at + 36];
            let number = known.iter().position(|known| known == id);
            let number = number.unwrap_or_else(|| {
                known.push(id.to_owned());
                known.len() - 1
            });
            out.push_str(&rest[..at]);
            out.push_str(&format!("#{}", number + 1));
            rest = &rest[at + 36..];
        }
        out + rest
    };
    lines.into_iter().map(&mut short).collect()
}

fn id_in(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_id = |id: &[u8]| {
        id.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    bytes.windows(36).position(is_id)
}
