//! One sealed value, as text: [`SEALED`], the name of the key, and what AES-SIV (RFC 5297) made of
//! it, in base64; of what may be sent again, also a mark by which it is known.
//!
//! The key's name, the namespace and the place are authenticated with it. Each value has a number
//! of its own, so that equal values look different; only marks are equal, and only of the same
//! value, sent to the same place under the same id.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use roundel_core::{Name, SEALED};

use super::keys::Keys;
use super::place::{Made, Place};

/// Of every value, so that keys are good for nothing else by chance.
const VALUE: &[u8] = b"roundel payload 1";
/// Of every mark.
const MARK: &[u8] = b"roundel resend 1";
/// Bytes of a nonce.
const NONCE: usize = 16;

/// Why a text does not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shut {
    /// The key of this name is not there.
    NoKey(String),
    /// It is not what that key sealed for this place.
    Broken(String),
}

/// Seals a text for a place; `once` is the id under which it may be sent again.
pub(super) fn seal(
    (keys, namespace): (&Keys, &Name),
    place: &Place<'_>,
    text: &str,
    once: Option<&str>,
) -> String {
    let (made, known, nonce) = (place.made(), place.known(), keys.nonce());
    let (name, mut siv) = keys.first();
    let head = head(&made);
    let headers = headers((name, namespace), &head, &known, &nonce);
    let sealed = siv.encrypt(headers, text.as_bytes());
    let sealed = sealed.expect("a few headers, and room in memory");
    let blob = BASE64.encode([&head[..], &nonce, &sealed].concat());
    let mark = once.map(|once| mark((keys, namespace), &head, once, text));
    let mark = mark.unwrap_or_default();
    format!("{SEALED}{name}:{blob}{mark}")
}

/// The text, if it was sealed for where it is read.
pub(super) fn open(
    (keys, namespace): (&Keys, &Name),
    place: &Place<'_>,
    sealed: &str,
) -> Result<String, Shut> {
    let (name, blob) = parts(sealed);
    let Some(mut siv) = keys.named(name) else {
        return Err(Shut::NoKey(name.to_owned()));
    };
    let mut opened = || {
        let blob = BASE64.decode(blob).ok()?;
        let (made, at) = read_head(&blob)?;
        let (head, rest) = blob.split_at(at);
        let (nonce, sealed) = rest.split_at_checked(NONCE)?;
        if !place.takes(&made) {
            return None;
        }
        let known = place.known();
        let headers = headers((name, namespace), head, &known, nonce);
        String::from_utf8(siv.decrypt(headers, sealed).ok()?).ok()
    };
    opened().ok_or_else(|| Shut::Broken(name.to_owned()))
}

/// The name of the key, and what it has sealed.
pub(super) fn parts(sealed: &str) -> (&str, &str) {
    let rest = sealed.strip_prefix(SEALED).unwrap_or(sealed);
    let (name, rest) = rest.split_once(':').unwrap_or((rest, ""));
    let blob = rest.split_once(':').map_or(rest, |(blob, _)| blob);
    (name, blob)
}

fn headers<'a>(
    (key, namespace): (&'a str, &'a Name),
    head: &'a [u8],
    known: &'a [u8],
    nonce: &'a [u8],
) -> [&'a [u8]; 6] {
    let namespace = namespace.as_str().as_bytes();
    [VALUE, key.as_bytes(), namespace, head, known, nonce]
}

/// By this it is known when it is sent again.
fn mark((keys, namespace): (&Keys, &Name), head: &[u8], once: &str, text: &str) -> String {
    let said = [
        MARK,
        namespace.as_str().as_bytes(),
        head,
        once.as_bytes(),
        text.as_bytes(),
    ];
    let mark = keys.resends().encrypt_in_place_detached(said, &mut []);
    format!(":{}", BASE64.encode(mark.expect("a few headers")))
}

/// What it is sealed for, as bytes.
fn head(made: &Made) -> Vec<u8> {
    let length = u16::try_from(made.name.len()).expect("names are short");
    let mut head = vec![made.kind];
    head.extend(length.to_be_bytes());
    head.extend(&made.name);
    head
}

/// The same back, and how long it is.
fn read_head(blob: &[u8]) -> Option<(Made, usize)> {
    let (kind, rest) = blob.split_first()?;
    let (length, rest) = rest.split_at_checked(2)?;
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    let name = rest.get(..length)?.to_vec();
    Some((Made { kind: *kind, name }, 3 + length))
}
