//! Where a request came from. A cookie is sent by browsers whoever makes them ask; what it pays for
//! must come from our own pages.

use axum::http::{HeaderMap, Method, header};

use crate::problem::{Code, Problem};

/// Did the request, which brought a cookie, come from a page of this host?
pub(crate) fn same_site(method: &Method, headers: &HeaderMap, host: &str) -> Result<(), Problem> {
    let said = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let safe = method == Method::GET || method == Method::HEAD;
    let origin = headers.get(header::ORIGIN);
    let own = origin.map(|origin| {
        let origin = origin.to_str().unwrap_or("?");
        let name = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        name.is_some_and(|name| name.eq_ignore_ascii_case(host))
    });
    let fetched = said("sec-fetch-site").map(|site| match site {
        "same-origin" => true,
        // Typed, or from a bookmark: nothing that changes anything.
        "none" => safe,
        _ => false,
    });
    let fine = match (own, fetched) {
        (Some(false), _) | (_, Some(false)) => false,
        (None, None) => safe,
        _ => true,
    };
    match fine {
        true => Ok(()),
        false => {
            let text = "the request did not come from a page of this server; \
                        programs send a token instead of a cookie";
            Err(Problem::new(Code::CrossSite, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n12_a_cookie_pays_only_for_what_our_own_pages_ask() {
        let ask = |method: &Method, named: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in named {
                headers.insert(*name, value.parse().unwrap());
            }
            same_site(method, &headers, "localhost:80").is_ok()
        };
        let (own, other) = (("origin", "http://localhost:80"), ("origin", "http://evil"));
        let site = |word| ("sec-fetch-site", word);
        // Headers; may they read; may they change.
        for (headers, read, change) in [
            (vec![], true, false),
            (vec![own], true, true),
            (vec![other], false, false),
            (vec![("origin", "null")], false, false),
            (vec![("origin", "http://localhost:81")], false, false),
            (vec![site("same-origin")], true, true),
            (vec![site("none")], true, false),
            (vec![site("same-site")], false, false),
            (vec![site("cross-site")], false, false),
            (vec![site("cross-site"), own], false, false),
            (vec![site("same-origin"), other], false, false),
            (vec![site("same-origin"), own], true, true),
        ] {
            assert_eq!(ask(&Method::GET, &headers), read, "{headers:?}");
            assert_eq!(ask(&Method::POST, &headers), change, "{headers:?}");
        }
    }
}
