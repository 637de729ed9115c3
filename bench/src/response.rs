//! As much of HTTP/1.1 as a client needs to know that a response is complete.

/// A complete response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Complete {
    pub(crate) status: u16,
    pub(crate) length: usize,
}

/// The response at the start of these bytes, or `None` while some of it is missing.
///
/// Its length must be told by `content-length`, as the servers here do; without it the body is taken to be empty.
pub(crate) fn complete(bytes: &[u8]) -> Option<Complete> {
    let mut body_length = 0;
    let mut line_start = 0;
    loop {
        let line_length = bytes[line_start..].iter().position(|&byte| byte == b'\n')?;
        let line = bytes[line_start..line_start + line_length].trim_ascii_end();
        line_start += line_length + 1;
        if line.is_empty() {
            break;
        }
        body_length = content_length(line).unwrap_or(body_length);
    }
    let length = line_start + body_length;
    (bytes.len() >= length).then(|| Complete {
        status: status(bytes).unwrap_or(0),
        length,
    })
}

fn status(bytes: &[u8]) -> Option<u16> {
    let status = bytes.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    std::str::from_utf8(status).ok()?.parse().ok()
}

fn content_length(line: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    // The first letter first: it rules out most lines.
    if !matches!(line.first(), Some(b'c' | b'C')) {
        return None;
    }
    let (name, value) = line.split_at_checked(NAME.len())?;
    if !name.eq_ignore_ascii_case(NAME) {
        return None;
    }
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_complete_with_its_last_byte() {
        let response =
            b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nContent-Length: 5\r\n\r\nhello";
        for length in 0..response.len() {
            assert_eq!(complete(&response[..length]), None, "{length}");
        }
        let expected = Complete {
            status: 200,
            length: response.len(),
        };
        assert_eq!(complete(response), Some(expected));
    }

    #[test]
    fn a_refusal_is_seen() {
        let response = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(
            complete(response).map(|complete| complete.status),
            Some(429)
        );
    }
}
