//! What a request asks: its query, read strictly, and its body, which is small.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::str::FromStr;

use axum::body::{Body, Bytes};
use http::StatusCode;
use http_body::Body as _;

use super::problem::Problem;
use crate::limit::Key;

/// A key of several parts, each of the longest, in hexadecimal: and still nothing that takes time to read.
const LONGEST_QUERY: usize = 8_192;
/// A limit and its end have some 80.
const LONGEST_BODY: usize = 4_096;
/// Beyond it a value is stored as its hash.
const LONGEST_VALUE: usize = 64;
const DEFAULT_LIMIT: usize = 100;
const LARGEST_LIMIT: usize = 1_000;

/// The parameters of a query, each of them known, and none twice.
#[derive(Debug)]
pub(super) struct Ask {
    parameters: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Ask {
    /// Reads the query of a request to a route that knows these parameters.
    pub(super) fn read(
        query: Option<&str>,
        known: &'static [&'static str],
    ) -> Result<Self, Problem> {
        let query = query.unwrap_or_default();
        if query.len() > LONGEST_QUERY {
            return Err(Problem::new(
                StatusCode::URI_TOO_LONG,
                format!(
                    "The query is longer than {LONGEST_QUERY} bytes, and no key needs as many."
                ),
            ));
        }
        let mut parameters: Vec<(&'static str, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decoded(name)?, decoded(value)?);
            let Some(name) = known.iter().copied().find(|known| *known == name) else {
                return Err(Problem::invalid(unknown(known)));
            };
            if parameters.iter().any(|(before, _)| *before == name) {
                return Err(Problem::invalid(format!(
                    "The parameter {name} is there twice: send it once."
                )));
            }
            parameters.push((name, value));
        }
        let body = Vec::new();
        Ok(Self { parameters, body })
    }

    /// Refuses a body where none is read. Parameters may be in it, and a reset without them is another one.
    pub(super) async fn read_no_body(mut body: Body) -> Result<(), Problem> {
        let mut is_there = body.size_hint().lower() > 0;
        while !is_there && let Some(data) = next_data(&mut body).await? {
            is_there = !data.is_empty();
        }
        if is_there {
            return Err(Problem::invalid(
                "There is a body, which is not read here: send the parameters in the query. With curl, -G puts those of -d there.",
            ));
        }
        Ok(())
    }

    /// Reads the body, and no more of it than may be.
    pub(super) async fn read_body(&mut self, mut body: Body) -> Result<(), Problem> {
        while let Some(data) = next_data(&mut body).await? {
            if self.body.len() + data.len() > LONGEST_BODY {
                return Err(Problem::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    format!(
                        "The body is longer than {LONGEST_BODY} bytes, and no limit needs as many."
                    ),
                ));
            }
            self.body.extend_from_slice(&data);
        }
        Ok(())
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Whether it is said that all keys are meant.
    pub(super) fn is_all(&self) -> Result<bool, Problem> {
        match self.get("all") {
            None => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Problem::invalid(
                "The parameter all is not true: leave it out, or send all=true.",
            )),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut parameters = self.parameters.iter();
        let found = parameters.find(|(known, _)| *known == name);
        found.map(|(_, value)| &**value)
    }

    pub(super) fn required(&self, name: &str) -> Result<&str, Problem> {
        self.get(name).ok_or_else(|| missing(name))
    }

    /// A key, as it is stored.
    pub(super) fn key(&self, name: &str) -> Result<Option<Key>, Problem> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        let invalid = |why: &str| Err(Problem::invalid(format!("The parameter {name}: {why}.")));
        match Key::from_str(text) {
            Ok(key) => match stored_otherwise(&key) {
                Some(stored) => invalid(&stored),
                None => Ok(Some(key)),
            },
            Err(_) if has_long_value(text) => invalid(
                "a value of more than 64 bytes is stored as a hash: take the key as /refused, /busiest or /usage/keys tell it",
            ),
            Err(error) => invalid(&error.to_string()),
        }
    }

    pub(super) fn required_key(&self, name: &str) -> Result<Key, Problem> {
        self.key(name)?.ok_or_else(|| missing(name))
    }

    /// How many things of a list are asked for.
    pub(super) fn limit(&self) -> Result<usize, Problem> {
        let Some(text) = self.get("limit") else {
            return Ok(DEFAULT_LIMIT);
        };
        let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let limit = text.parse().ok().filter(|_| is_digits);
        limit
            .filter(|limit| (1..=LARGEST_LIMIT).contains(limit))
            .ok_or_else(|| {
                Problem::invalid(format!(
                    "The parameter limit is not a number from 1 to {LARGEST_LIMIT}."
                ))
            })
    }
}

/// What comes next of a body; of trailers nothing.
async fn next_data(body: &mut Body) -> Result<Option<Bytes>, Problem> {
    let Some(frame) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await else {
        return Ok(None);
    };
    let frame = frame.map_err(|_| Problem::bad_request("The body broke off: send it again."))?;
    Ok(Some(frame.into_data().unwrap_or_default()))
}

fn missing(name: &str) -> Problem {
    Problem::invalid(format!("The parameter {name} is missing: send it."))
}

fn unknown(known: &[&str]) -> String {
    if known.is_empty() {
        return "There are no parameters here: send none.".to_owned();
    }
    format!(
        "There is a parameter that is not known here: there are {}.",
        known.join(", ")
    )
}

/// A name or a value of a form: `+` is a space, `%41` a byte.
fn decoded(text: &str) -> Result<String, Problem> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                let (Some(high), Some(low)) = (digit(), digit()) else {
                    return Err(Problem::bad_request(
                        "The query has a % that no two hexadecimal digits follow: a % itself is %25.",
                    ));
                };
                u8::try_from(16 * high + low).unwrap_or_default()
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| {
        Problem::bad_request(
            "The query is not UTF-8. In the text of a key a byte that is none is written %XX, and the % of that is %25 in a query.",
        )
    })
}

/// What to type instead of a key that no request has: the name of a header in other letters, or an address as it is not stored.
fn stored_otherwise(key: &Key) -> Option<String> {
    key.parts().find_map(|part| {
        let (kind, value) = (part.kind(), part.value()?);
        if let Some(header) = kind.strip_prefix("header/")
            && header.bytes().any(|byte| byte.is_ascii_uppercase())
        {
            let stored = header.to_ascii_lowercase();
            return Some(format!(
                "the name of a header is stored in lower case: header/{stored}:…"
            ));
        }
        let address: IpAddr = (kind == "ip").then(|| value.parse().ok())??;
        let stored = Key::ip(address);
        let is_stored = stored.parts().next()?.value() == Some(value);
        (!is_stored).then(|| format!("this address is stored as {}", stored.as_str()))
    })
}

/// Whether a value is so long that only its hash is stored.
fn has_long_value(text: &str) -> bool {
    let mut parts = text.split('|').filter_map(|part| part.split_once(':'));
    parts.any(|(_, value)| value.len() > LONGEST_VALUE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KNOWN: &[&str] = &["key", "limit"];

    fn read(query: &str) -> Result<Ask, Problem> {
        Ask::read(Some(query), KNOWN)
    }

    #[test]
    fn keys_are_read_as_they_are_stored() {
        let key = |query: &str| read(query).unwrap().required_key("key").unwrap();
        let user = Key::new("user", 42).and("route", "/a b");
        assert_eq!(key("key=user%3A42%7Croute%3A%2Fa+b"), user);
        assert_eq!(key("&key=user:42|route:/a%20b&"), user);
        assert_eq!(
            key("key=header/x:%25A1"),
            Key::header("x", [0xA1].as_slice())
        );
    }

    #[test]
    fn what_can_t_be_read_is_told_apart_from_what_makes_no_sense() {
        let status = |query: &str| {
            let read = read(query).and_then(|ask| ask.required_key("key").and(ask.limit()));
            read.unwrap_err().into_status()
        };
        for query in [
            "key=%",
            "key=%4",
            "key=%zz",
            "%ff=1",
            "key=%C3%28",
            "key=%4%31",
        ] {
            assert_eq!(status(query), 400, "{query}");
        }
        for query in [
            "",
            "key",
            "key=",
            "key=user",
            "key=a:b&key=a:b",
            "kez=a:b",
            "key=a:b&limit=0",
            "key=a:b&limit=1001",
            "key=a:b&limit=%2B5",
            "key=a:b&limit=",
            "key=a:b&limit=99999999999999999999",
            "key=a:b&limit=-1",
        ] {
            assert_eq!(status(query), 422, "{query}");
        }
        assert_eq!(status(&format!("key={}", "a".repeat(8_192))), 414);
    }

    proptest! {
        #[test]
        fn nothing_that_is_sent_makes_it_panic(query in "[%&=+a-f0-9:|é]{0,60}") {
            if let Ok(ask) = read(&query) {
                let _ = (ask.key("key"), ask.limit());
            }
        }
    }
}
