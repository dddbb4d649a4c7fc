//! Values on their way to PostgreSQL and back: what a parameter wants and what a column holds is
//! known from the server, so that the same values work as on SQLite.

use sqlx::encode::{Encode, IsNull};
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgArguments, PgRow, PgTypeInfo, PgValueFormat};
use sqlx::{Arguments, Column as _, Postgres, Row as _, Type, TypeInfo, ValueRef};

use super::super::value::{Row, Value, miscounted};
use super::TxError;

/// A value, in the bytes of the type that the statement wants.
struct Bound {
    kind: PgTypeInfo,
    bytes: Option<Vec<u8>>,
}

impl Type<Postgres> for Bound {
    fn type_info() -> PgTypeInfo {
        <str as Type<Postgres>>::type_info()
    }
}

impl Encode<'_, Postgres> for Bound {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let Some(bytes) = &self.bytes else {
            return Ok(IsNull::Yes);
        };
        buffer.extend_from_slice(bytes);
        Ok(IsNull::No)
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(self.kind.clone())
    }
}

/// The values as what the statement's parameters are.
pub(super) fn arguments(types: &[PgTypeInfo], values: &[Value]) -> Result<PgArguments, TxError> {
    if types.len() != values.len() {
        return Err(miscounted(types.len(), values));
    }
    let mut arguments = PgArguments::default();
    for (place, (kind, value)) in types.iter().zip(values).enumerate() {
        let bytes = match value {
            Value::Null => None,
            value => {
                let bytes = encode(kind.name(), value);
                Some(bytes.ok_or_else(|| unfit(place + 1, kind, value))?)
            }
        };
        let kind = kind.clone();
        let added = arguments.add(Bound { kind, bytes });
        added.map_err(|error| TxError::Database(error.to_string()))?;
    }
    Ok(arguments)
}

fn unfit(place: usize, kind: &PgTypeInfo, value: &Value) -> TxError {
    let (wanted, given) = (kind.name(), value.kind());
    TxError::Database(format!(
        "parameter ${place} is {wanted}, and {given} was given that is none; \
         a text is taken for any type where the statement says \
         `CAST(CAST(${place} AS TEXT) AS {wanted})`"
    ))
}

fn encode(kind: &str, value: &Value) -> Option<Vec<u8>> {
    Some(match (kind, value) {
        ("BOOL", Value::Integer(number @ (0 | 1))) => vec![u8::from(*number == 1)],
        ("INT2", Value::Integer(number)) => i16::try_from(*number).ok()?.to_be_bytes().into(),
        ("INT4", Value::Integer(number)) => i32::try_from(*number).ok()?.to_be_bytes().into(),
        ("INT8", Value::Integer(number)) => number.to_be_bytes().into(),
        ("FLOAT4", Value::Real(number)) => (*number as f32).to_be_bytes().into(),
        ("FLOAT4", Value::Integer(number)) => (*number as f32).to_be_bytes().into(),
        ("FLOAT8", Value::Real(number)) => number.to_be_bytes().into(),
        ("FLOAT8", Value::Integer(number)) => (*number as f64).to_be_bytes().into(),
        ("NUMERIC", Value::Integer(number)) => decimal(&number.to_string())?,
        ("NUMERIC", Value::Real(number)) if number.is_finite() => decimal(&number.to_string())?,
        ("NUMERIC", Value::Text(text)) => decimal(text)?,
        ("TEXT" | "VARCHAR" | "CHAR" | "NAME" | "UNKNOWN" | "JSON", Value::Text(text)) => {
            text.as_bytes().to_vec()
        }
        ("JSONB", Value::Text(text)) => [&[1], text.as_bytes()].concat(),
        ("BYTEA", Value::Blob(bytes)) => bytes.clone(),
        ("UUID", Value::Blob(bytes)) if bytes.len() == 16 => bytes.clone(),
        ("UUID", Value::Text(text)) => uuid::Uuid::parse_str(text).ok()?.as_bytes().to_vec(),
        _ => return None,
    })
}

/// Digits of a number in groups of four, as PostgreSQL sends and takes them.
fn decimal(text: &str) -> Option<Vec<u8>> {
    const MOST: usize = 1000;
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (0x4000_u16, digits),
        None => (0, text),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = whole
        .bytes()
        .chain(part.bytes())
        .all(|b| b.is_ascii_digit());
    if !all_digits || whole.len() + part.len() > MOST || whole.is_empty() && part.is_empty() {
        return None;
    }
    let lead = whole.len().next_multiple_of(4) - whole.len();
    let padded = format!("{}{whole}{part}{}", "0".repeat(lead), {
        "0".repeat(part.len().next_multiple_of(4) - part.len())
    });
    let mut groups: Vec<u16> = Vec::with_capacity(padded.len() / 4);
    for at in (0..padded.len()).step_by(4) {
        groups.push(padded[at..at + 4].parse().ok()?);
    }
    let mut weight = i16::try_from((whole.len() + lead) / 4).ok()? - 1;
    while groups.first() == Some(&0) {
        groups.remove(0);
        weight -= 1;
    }
    while groups.last() == Some(&0) {
        groups.pop();
    }
    let mut bytes = Vec::with_capacity(8 + groups.len() * 2);
    bytes.extend(u16::try_from(groups.len()).ok()?.to_be_bytes());
    bytes.extend(weight.to_be_bytes());
    bytes.extend(sign.to_be_bytes());
    bytes.extend(u16::try_from(part.len()).ok()?.to_be_bytes());
    for group in groups {
        bytes.extend(group.to_be_bytes());
    }
    Some(bytes)
}

/// What the rows hold.
pub(super) fn rows(rows: &[PgRow]) -> Result<Vec<Row>, TxError> {
    let Some(first) = rows.first() else {
        return Ok(Vec::new());
    };
    let names = first.columns().iter();
    let names: Vec<String> = names.map(|column| column.name().to_owned()).collect();
    let names: std::sync::Arc<[String]> = names.into();
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        found.push(Row::new(names.clone(), of_row(row)?));
    }
    Ok(found)
}

/// What a row holds.
pub(crate) fn of_row(row: &PgRow) -> Result<Vec<Value>, TxError> {
    (0..row.columns().len()).map(|at| value(row, at)).collect()
}

fn value(row: &PgRow, at: usize) -> Result<Value, TxError> {
    let raw = row
        .try_get_raw(at)
        .map_err(|error| super::trouble(&error))?;
    if raw.is_null() {
        return Ok(Value::Null);
    }
    let bytes = raw.as_bytes().unwrap_or_default();
    let kind = raw.type_info();
    let read = match raw.format() {
        PgValueFormat::Binary => decode(kind.name(), bytes),
        PgValueFormat::Text => text(bytes),
    };
    read.ok_or_else(|| {
        let (name, kind) = (row.column(at).name(), kind.name());
        TxError::Database(format!(
            "column `{name}` is {kind}, which is not read; \
             write `CAST({name} AS TEXT)`, or use `tx.postgres()`"
        ))
    })
}

fn decode(kind: &str, bytes: &[u8]) -> Option<Value> {
    Some(match kind {
        "BOOL" => Value::Integer(i64::from(bytes.first()? == &1)),
        "INT2" => Value::Integer(i16::from_be_bytes(bytes.try_into().ok()?).into()),
        "INT4" => Value::Integer(i32::from_be_bytes(bytes.try_into().ok()?).into()),
        "INT8" => Value::Integer(i64::from_be_bytes(bytes.try_into().ok()?)),
        "OID" => Value::Integer(u32::from_be_bytes(bytes.try_into().ok()?).into()),
        "FLOAT4" => Value::Real(f32::from_be_bytes(bytes.try_into().ok()?).into()),
        "FLOAT8" => Value::Real(f64::from_be_bytes(bytes.try_into().ok()?)),
        "TEXT" | "VARCHAR" | "CHAR" | "NAME" | "UNKNOWN" | "JSON" | "\"CHAR\"" => text(bytes)?,
        "JSONB" => text(bytes.get(1..)?)?,
        "BYTEA" => Value::Blob(bytes.to_vec()),
        "UUID" => Value::Text(uuid::Uuid::from_slice(bytes).ok()?.to_string()),
        "NUMERIC" => Value::Text(digits(bytes)?),
        "DATE" => {
            let days = i32::from_be_bytes(bytes.try_into().ok()?);
            Value::Text(
                endless(days.into(), i32::MIN.into(), i32::MAX.into())
                    .unwrap_or_else(|| date(i64::from(days))),
            )
        }
        "TIMESTAMP" | "TIMESTAMPTZ" => {
            let micros = i64::from_be_bytes(bytes.try_into().ok()?);
            let shown = endless(micros, i64::MIN, i64::MAX);
            let zone = if kind == "TIMESTAMPTZ" { "Z" } else { "" };
            Value::Text(shown.unwrap_or_else(|| format!("{}{zone}", moment(micros))))
        }
        _ => return None,
    })
}

fn text(bytes: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(bytes).ok()?;
    Some(Value::Text(text.to_owned()))
}

fn endless(value: i64, least: i64, most: i64) -> Option<String> {
    if value == most {
        return Some("infinity".to_owned());
    }
    (value == least).then(|| "-infinity".to_owned())
}

/// The day so many days after the first of the year 2000.
fn date(days: i64) -> String {
    // Counted from the first of March of the year 0, in eras of 400 years.
    let shifted = days + 730_425;
    let era = shifted.div_euclid(146_097);
    let day = shifted.rem_euclid(146_097);
    let year_of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day_of_month:02}")
}

fn moment(micros: i64) -> String {
    const DAY: i64 = 86_400_000_000;
    let (days, rest) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
    let (seconds, micros) = (rest / 1_000_000, rest % 1_000_000);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let seconds = seconds % 60;
    format!(
        "{}T{hours:02}:{minutes:02}:{seconds:02}.{micros:06}",
        date(days)
    )
}

/// The number as people write it.
fn digits(bytes: &[u8]) -> Option<String> {
    let mut fields = bytes
        .chunks_exact(2)
        .map(|two| u16::from_be_bytes([two[0], two[1]]));
    let (count, weight, sign) = (fields.next()?, fields.next()? as i16, fields.next()?);
    let scale = usize::from(fields.next()?);
    match sign {
        0xC000 => return Some("NaN".to_owned()),
        0xD000 => return Some("Infinity".to_owned()),
        0xF000 => return Some("-Infinity".to_owned()),
        _ => {}
    }
    let groups: Vec<u16> = fields.take(count.into()).collect();
    let group = |at: i32| -> u16 {
        let at = usize::try_from(i32::from(weight) - at).ok();
        at.and_then(|at| groups.get(at)).copied().unwrap_or(0)
    };
    let whole: String = (0..=i32::from(weight).max(0))
        .rev()
        .map(|at| format!("{:04}", group(at)))
        .collect();
    let whole = whole.trim_start_matches('0');
    let mut shown = String::from(if sign == 0x4000 { "-" } else { "" });
    shown.push_str(if whole.is_empty() { "0" } else { whole });
    if scale > 0 {
        let groups = i32::try_from(scale.div_ceil(4)).ok()?;
        let part: String = (1..=groups)
            .map(|at| format!("{:04}", group(-at)))
            .collect();
        shown.push('.');
        shown.push_str(&part[..scale]);
    }
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_length_go_there_and_back() {
        for number in [
            "0",
            "1",
            "-1",
            "9999",
            "10000",
            "123456789012345678901234567890.5",
            "0.0001",
            "-0.00012345",
            "100000000",
            "3.1400",
        ] {
            let bytes = decimal(number).expect(number);
            assert_eq!(digits(&bytes).as_deref(), Some(number));
        }
        for bad in ["", ".", "-", "1e5", "x", "1.2.3", "--1"] {
            assert_eq!(decimal(bad), None, "{bad}");
        }
    }

    #[test]
    fn moments_are_shown_as_people_write_them() {
        assert_eq!(date(0), "2000-01-01");
        assert_eq!(date(59), "2000-02-29");
        assert_eq!(date(-1), "1999-12-31");
        assert_eq!(date(-10_957), "1970-01-01");
        assert_eq!(moment(-1), "1999-12-31T23:59:59.999999");
        let endless = decode("TIMESTAMPTZ", &i64::MAX.to_be_bytes());
        assert_eq!(endless, Some(Value::Text("infinity".into())));
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused_and_never_cut() {
        assert_eq!(encode("INT2", &Value::Integer(40_000)), None);
        assert_eq!(encode("INT4", &Value::Integer(1 << 40)), None);
        assert_eq!(encode("BOOL", &Value::Integer(2)), None);
        assert_eq!(encode("UUID", &Value::Blob(vec![1; 15])), None);
        assert_eq!(encode("TEXT", &Value::Integer(1)), None);
    }
}
