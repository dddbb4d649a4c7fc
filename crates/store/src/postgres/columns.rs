//! Ids that are spread over columns.

use roundel_core::{GateId, OfferId, OfferRow};

use crate::cells::{self, Cells, Strange};

/// A gate: namespace, name.
pub(super) fn gate_id(row: &impl Cells) -> Result<GateId, Strange> {
    Ok(GateId {
        namespace: cells::name(row, 0)?,
        name: cells::name(row, 1)?,
    })
}

/// An offer: namespace, name, place, payload, taken_by, at.
pub(super) fn offer(row: &impl Cells) -> Result<(OfferId, OfferRow), Strange> {
    let gate = gate_id(row)?;
    let (place, offer) = cells::offer(row, 2)?;
    Ok((OfferId { gate, place }, offer))
}
