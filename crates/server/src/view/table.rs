//! What an operator's own statement found, as JSON.

use roundel::Value;
use serde_json::{Value as Json, json};

/// A value as it is shown. Bytes are an id if they are as the engine makes them, the text that they
/// hold (payloads are), or else in hexadecimal digits, as SQL writes them.
#[must_use]
pub fn cell(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Integer(number) => json!(number),
        Value::Real(number) if number.is_finite() => json!(number),
        Value::Real(number) => json!(number.to_string()),
        Value::Text(text) => json!(text),
        Value::Blob(bytes) => json!(bytes_shown(bytes)),
    }
}

/// Rows as a file that spreadsheets read (RFC 4180), the names of the columns first. A text that
/// begins as a formula does gets an apostrophe before it, so that none is run: whoever could write
/// a payload could else write into the sheet of whoever looks at it.
#[must_use]
pub fn csv(table: &roundel::Table) -> String {
    let mut text = String::new();
    line(&mut text, table.columns.iter().map(|name| json!(name)));
    for row in &table.rows {
        line(&mut text, row.iter().map(cell));
    }
    text
}

fn line(text: &mut String, cells: impl Iterator<Item = Json>) {
    for (at, cell) in cells.enumerate() {
        if at > 0 {
            text.push(',');
        }
        match cell {
            Json::Null => {}
            Json::String(said) => {
                let formula = said.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '|', '%']);
                text.push('"');
                text.push_str(if formula { "'" } else { "" });
                text.push_str(&said.replace('"', "\"\""));
                text.push('"');
            }
            other => text.push_str(&other.to_string()),
        }
    }
    text.push_str("\r\n");
}

fn bytes_shown(bytes: &[u8]) -> String {
    if let Ok(id) = uuid::Uuid::from_slice(bytes)
        && id.get_variant() == uuid::Variant::RFC4122
        && matches!(id.get_version_num(), 4 | 7)
    {
        return id.to_string();
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() => text.to_owned(),
        _ => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("x'{digits}'")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o7_a_cell_that_looks_like_a_formula_is_text() {
        let text = |text: &str| Value::Text(text.to_owned());
        let rows = [
            "=HYPERLINK(\"//evil.example\")",
            "+1+cmd|'/C calc'!A0",
            "-2+3",
            "@SUM(1)",
            "\t=1",
            "\r=1",
            "\n=1",
            "|calc",
            "%0A=1",
        ];
        let table = roundel::Table {
            columns: vec!["=1".to_owned(), "n".to_owned()],
            rows: rows
                .iter()
                .map(|row| vec![text(row), Value::Integer(-1)])
                .collect(),
            more: false,
        };
        let csv = csv(&table);
        assert!(
            csv.starts_with("\"'=1\",\"n\"\r\n\"'=HYPERLINK(\"\"//evil"),
            "{csv}"
        );
        assert_eq!(csv.matches("\"'").count(), rows.len() + 1, "{csv}");
        assert_eq!(
            csv.matches(",-1\r\n").count(),
            rows.len(),
            "numbers are: {csv}"
        );
        let table = roundel::Table {
            columns: vec!["a".to_owned(), "b".to_owned(), "c".to_owned()],
            rows: vec![vec![
                text("one, \"two\"\r\nthree"),
                Value::Null,
                Value::Real(0.5),
            ]],
            more: false,
        };
        let lines = super::csv(&table);
        assert_eq!(
            lines,
            "\"a\",\"b\",\"c\"\r\n\"one, \"\"two\"\"\r\nthree\",,0.5\r\n"
        );
    }

    #[test]
    fn bytes_are_shown_as_what_they_are() {
        let id = uuid::Uuid::now_v7();
        let shown = |bytes: &[u8]| cell(&Value::Blob(bytes.to_vec()));
        assert_eq!(shown(id.as_bytes()), json!(id.to_string()));
        assert_eq!(shown(b"{\"a\":1}"), json!("{\"a\":1}"));
        assert_eq!(shown(&[0xff, 0]), json!("x'ff00'"));
        assert_eq!(shown(&[]), json!("x''"));
        assert_eq!(cell(&Value::Real(f64::NAN)), json!("NaN"));
    }
}
