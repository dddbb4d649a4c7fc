//! What is done about parked signals.

use super::Maker;
use super::draw::Draw;
use crate::{Destination, MailId, Name, Op, Redirect};

impl Maker<'_> {
    /// A parked signal, if there is one; else some message that is not.
    pub(super) fn redirect(&self, draw: &mut Draw) -> Op {
        let named = || self.rows.mail.iter().filter(|(id, _)| id.name.is_some());
        let parked = named().filter(|(_, row)| row.parked_at.is_some());
        let mut found: Vec<&MailId> = parked.map(|(id, _)| id).collect();
        if found.is_empty() || draw.one_in(20) {
            found = named().map(|(id, _)| id).collect();
        }
        if found.is_empty() {
            return Op::Signal(self.signal(draw));
        }
        let id = found[draw.below(found.len() as u64) as usize];
        let to = match draw.below(5) {
            0 => Destination::Out,
            1 | 2 => Destination::Offer,
            _ => Destination::Run(self.target(draw).1),
        };
        Op::Redirect(Redirect {
            namespace: self.namespace_of(id.run, draw),
            run: id.run,
            name: id.name.clone().unwrap_or(Name::FIRST),
            number: id.number,
            to,
            claimant: Self::claimant(draw),
        })
    }
}
