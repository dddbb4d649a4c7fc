//! The transaction that a step is given. Stub.

/// A transaction.
#[derive(Clone, Debug)]
pub struct Tx {
    pub(crate) number: u64,
}
/// What a statement can fail with.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TxError {
    /// The database said no.
    #[error("{0}")]
    Database(String),
}
/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
}
/// A row.
#[derive(Clone, Debug)]
pub struct Row(Vec<Value>);
/// From a value.
pub trait FromValue {}
/// Parameters.
pub trait Params {}
