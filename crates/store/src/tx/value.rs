//! Values that go into statements and come out of rows, the same for every database.

use rusqlite::Statement;
use rusqlite::types::{ToSqlOutput, ValueRef};

use super::TxError;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A whole number.
    Integer(i64),
    /// A number.
    Real(f64),
    /// A text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl Value {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Integer(_) => "an integer",
            Value::Real(_) => "a real number",
            Value::Text(_) => "a text",
            Value::Blob(_) => "bytes",
        }
    }
}

macro_rules! from {
    ($($type:ty => |$value:ident| $into:expr),* $(,)?) => {
        $(impl From<$type> for Value {
            fn from($value: $type) -> Value {
                $into
            }
        })*
    };
}

from! {
    i8 => |value| Value::Integer(value.into()),
    i16 => |value| Value::Integer(value.into()),
    i32 => |value| Value::Integer(value.into()),
    i64 => |value| Value::Integer(value),
    u8 => |value| Value::Integer(value.into()),
    u16 => |value| Value::Integer(value.into()),
    u32 => |value| Value::Integer(value.into()),
    bool => |value| Value::Integer(value.into()),
    f32 => |value| Value::Real(value.into()),
    f64 => |value| Value::Real(value),
    &str => |value| Value::Text(value.to_owned()),
    &String => |value| Value::Text(value.clone()),
    String => |value| Value::Text(value),
    &[u8] => |value| Value::Blob(value.to_vec()),
    &Vec<u8> => |value| Value::Blob(value.clone()),
    Vec<u8> => |value| Value::Blob(value),
    &Value => |value| value.clone(),
    roundel_core::RunId => |value| Value::Blob(value.as_bytes().to_vec()),
}

impl<const N: usize> From<[u8; N]> for Value {
    fn from(bytes: [u8; N]) -> Value {
        Value::Blob(bytes.to_vec())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

/// What a value can be read as.
pub trait FromValue: Sized {
    /// What is wanted, for people: `an integer`.
    const WANTED: &'static str;

    /// The value, if it is of that type.
    fn from_value(value: &Value) -> Option<Self>;
}

macro_rules! integers {
    ($($type:ty),*) => {
        $(impl FromValue for $type {
            const WANTED: &'static str = concat!("an integer that fits ", stringify!($type));

            fn from_value(value: &Value) -> Option<$type> {
                match value {
                    Value::Integer(number) => <$type>::try_from(*number).ok(),
                    _ => None,
                }
            }
        })*
    };
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64, usize);

impl FromValue for bool {
    const WANTED: &'static str = "0 or 1";

    fn from_value(value: &Value) -> Option<bool> {
        match value {
            Value::Integer(0) => Some(false),
            Value::Integer(1) => Some(true),
            _ => None,
        }
    }
}

impl FromValue for f64 {
    const WANTED: &'static str = "a number";

    fn from_value(value: &Value) -> Option<f64> {
        match value {
            Value::Real(number) => Some(*number),
            Value::Integer(number) => {
                let exact = i32::try_from(*number).ok();
                exact.map(f64::from).or(Some(*number as f64))
            }
            _ => None,
        }
    }
}

impl FromValue for String {
    const WANTED: &'static str = "a text";

    fn from_value(value: &Value) -> Option<String> {
        match value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl FromValue for Vec<u8> {
    const WANTED: &'static str = "bytes";

    fn from_value(value: &Value) -> Option<Vec<u8>> {
        match value {
            Value::Blob(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }
}

impl FromValue for Value {
    const WANTED: &'static str = "anything";

    fn from_value(value: &Value) -> Option<Value> {
        Some(value.clone())
    }
}

impl<T: FromValue> FromValue for Option<T> {
    const WANTED: &'static str = T::WANTED;

    fn from_value(value: &Value) -> Option<Option<T>> {
        match value {
            Value::Null => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

/// The values of a statement's parameters: nothing, a tuple, or a list.
pub trait Params: Send {
    /// As a list, `$1` first.
    fn into_values(self) -> Vec<Value>;
}

impl Params for () {
    fn into_values(self) -> Vec<Value> {
        Vec::new()
    }
}

impl<T: Into<Value> + Send> Params for Vec<T> {
    fn into_values(self) -> Vec<Value> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<T: Into<Value> + Send, const N: usize> Params for [T; N] {
    fn into_values(self) -> Vec<Value> {
        self.into_iter().map(Into::into).collect()
    }
}

impl Params for &[Value] {
    fn into_values(self) -> Vec<Value> {
        self.to_vec()
    }
}

macro_rules! tuples {
    ($($name:ident),+) => {
        impl<$($name: Into<Value> + Send),+> Params for ($($name,)+) {
            #[allow(non_snake_case)]
            fn into_values(self) -> Vec<Value> {
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        }
    };
}

tuples!(A);
tuples!(A, B);
tuples!(A, B, C);
tuples!(A, B, C, D);
tuples!(A, B, C, D, E);
tuples!(A, B, C, D, E, F);
tuples!(A, B, C, D, E, F, G);
tuples!(A, B, C, D, E, F, G, H);
tuples!(A, B, C, D, E, F, G, H, I);
tuples!(A, B, C, D, E, F, G, H, I, J);
tuples!(A, B, C, D, E, F, G, H, I, J, K);
tuples!(A, B, C, D, E, F, G, H, I, J, K, L);

/// One row of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    names: std::sync::Arc<[String]>,
    values: Vec<Value>,
}

/// A column: by its place from 0, or by its name.
pub trait Column {
    /// Its place, if there is such a column.
    fn place(&self, row: &Row) -> Option<usize>;
    /// As it was asked for.
    fn shown(&self) -> String;
}

impl Column for usize {
    fn place(&self, row: &Row) -> Option<usize> {
        Some(*self).filter(|place| *place < row.values.len())
    }

    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Column for &str {
    fn place(&self, row: &Row) -> Option<usize> {
        row.names.iter().position(|name| name == self)
    }

    fn shown(&self) -> String {
        format!("`{self}`")
    }
}

impl Row {
    #[cfg(feature = "postgres")]
    pub(super) fn new(names: std::sync::Arc<[String]>, values: Vec<Value>) -> Row {
        Row { names, values }
    }

    /// The value of a column, by place from 0 or by name.
    ///
    /// # Errors
    /// When there is no such column, or it holds something else.
    #[allow(clippy::needless_pass_by_value)]
    pub fn get<T: FromValue>(&self, column: impl Column) -> Result<T, TxError> {
        let value = column.place(self).map(|place| &self.values[place]);
        value.and_then(T::from_value).ok_or_else(|| TxError::Type {
            column: column.shown(),
            found: value.map_or("nothing (there is no such column)", Value::kind),
            wanted: T::WANTED,
        })
    }

    /// All values, in order.
    #[must_use]
    pub fn values(&self) -> &[Value] {
        &self.values
    }
}

/// Binds `$1` or `?1` to the first value and so on, and `?` by its place, if there is no other.
pub(super) fn bind(statement: &mut Statement<'_>, values: &[Value]) -> Result<(), TxError> {
    let (mut most, count) = (0, statement.parameter_count());
    let mut named = None;
    for at in 1..=count {
        let name = statement.parameter_name(at);
        // The place of a `?` among numbers is not what it looks like.
        if named.replace(name.is_some()) == Some(name.is_none()) {
            return Err(TxError::Database(
                "the statement has parameters with numbers and some without; \
                 write all of them as `$1`, `$2`"
                    .into(),
            ));
        }
        let place = match name {
            None => at,
            Some(name) => numbered(name)?,
        };
        most = most.max(place);
        let value = values
            .get(place - 1)
            .ok_or_else(|| miscounted(most, values))?;
        statement.raw_bind_parameter(at, value)?;
    }
    if most != values.len() {
        return Err(miscounted(most, values));
    }
    Ok(())
}

pub(super) fn miscounted(wanted: usize, values: &[Value]) -> TxError {
    let given = values.len();
    TxError::Database(format!(
        "the statement has {wanted} parameters, and {given} were given"
    ))
}

fn numbered(name: &str) -> Result<usize, TxError> {
    let digits = name.get(1..).filter(|_| name.starts_with(['$', '?']));
    let place = digits
        .and_then(|digits| digits.parse().ok())
        .filter(|place| *place > 0);
    place.ok_or_else(|| {
        TxError::Database(format!(
            "the parameter `{name}` has no number; write `$1`, `$2`"
        ))
    })
}

pub(super) fn read_all(statement: &mut Statement<'_>) -> Result<Vec<Row>, TxError> {
    let names: Vec<String> = statement.column_names().map(String::from).collect();
    let names: std::sync::Arc<[String]> = names.into();
    let mut found = Vec::new();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let mut values = Vec::with_capacity(names.len());
        for at in 0..names.len() {
            values.push(read(row.get_ref(at)?)?);
        }
        let names = names.clone();
        found.push(Row { names, values });
    }
    Ok(found)
}

fn read(value: ValueRef<'_>) -> Result<Value, TxError> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(_) => return Err(TxError::Database("a text is not valid UTF-8".into())),
        },
    })
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Integer(number) => ValueRef::Integer(*number),
            Value::Real(number) => ValueRef::Real(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}
