//! In whose name something is done, and on which look it rests.

use super::{Draw, PLAIN};
use crate::{Audited, IfParked, Op, Rows, Target};

/// Now and then somebody's name is known, or what is not parked is left alone.
pub(super) fn signed(op: Op, rows: &Rows, draw: &mut Draw) -> Op {
    let target = op.about().map(|about| about.target.clone());
    let op = match target {
        Some(target) if draw.one_in(12) => {
            let run = match target {
                Some(Target::Run(run)) => rows.run(run),
                _ => None,
            };
            // As it is, as it was, or nobody looked.
            let seen = run.map(|row| row.epoch.saturating_sub(draw.below(2)));
            let seen = seen.filter(|_| draw.one_in(2));
            Op::IfParked(Box::new(IfParked { op, seen }))
        }
        _ => op,
    };
    if op.about().is_none() || !draw.one_in(6) {
        return op;
    }
    let operator = draw.pick(&PLAIN).clone();
    let reason = format!("reason {}", draw.below(3));
    Op::Audited(Box::new(Audited {
        operator,
        reason,
        op,
    }))
}
