//! What goes to the database and comes from it, in its own binary form.

use roundel_core::{PublicationId, RunId, WorkerId};
use sqlx::encode::{Encode, IsNull};
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgRow, PgTypeInfo};
use sqlx::{Postgres, Row, Type, ValueRef};

use crate::cells::{Cells, Strange, strange};

/// Sixteen bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Id(pub(super) [u8; 16]);

impl From<RunId> for Id {
    fn from(id: RunId) -> Id {
        Id(*id.as_bytes())
    }
}

impl From<WorkerId> for Id {
    fn from(id: WorkerId) -> Id {
        Id(*id.as_bytes())
    }
}

impl From<PublicationId> for Id {
    fn from(id: PublicationId) -> Id {
        Id(*id.as_bytes())
    }
}

/// The database's own numbers for `uuid` and arrays of it.
const UUID: Oid = Oid(2950);
const UUIDS: Oid = Oid(2951);

impl Type<Postgres> for Id {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(UUID)
    }
}

impl PgHasArrayType for Id {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(UUIDS)
    }
}

impl Encode<'_, Postgres> for Id {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }
}

/// The number of a transaction, as rows have it in `xmin`: the last that wrote them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Xid(pub(super) u32);

const XID: Oid = Oid(28);
const XIDS: Oid = Oid(1011);

impl Type<Postgres> for Xid {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(XID)
    }
}

impl PgHasArrayType for Xid {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(XIDS)
    }
}

impl Encode<'_, Postgres> for Xid {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }
}

impl Cells for PgRow {
    fn int(&self, column: usize) -> Result<Option<i64>, Strange> {
        let Some(bytes) = self.bytes(column)? else {
            return Ok(None);
        };
        let number = match *bytes {
            [one] => i64::from(one),
            [a, b] => i64::from(i16::from_be_bytes([a, b])),
            [a, b, c, d] => i64::from(i32::from_be_bytes([a, b, c, d])),
            _ => {
                let bytes = bytes.try_into();
                i64::from_be_bytes(bytes.map_err(|_| strange(column, "it is no number"))?)
            }
        };
        Ok(Some(number))
    }

    fn bytes(&self, column: usize) -> Result<Option<&[u8]>, Strange> {
        let value = self.try_get_raw(column);
        let value = value.map_err(|error| strange(column, error))?;
        if value.is_null() {
            return Ok(None);
        }
        let bytes = value.as_bytes().map_err(|error| strange(column, error))?;
        Ok(Some(bytes))
    }
}
