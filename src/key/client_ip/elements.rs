//! The elements of a list in a header, from the right.

/// A proxy adds one element, and few requests pass more than a handful of proxies: what is further left is not read.
const MOST_ELEMENTS: usize = 32;
/// The same in bytes, since an element may be of any length.
const MOST_BYTES: usize = 8 * 1024;

/// Parts a line before its last element: what stands in front of the comma, if there is one, and the element.
pub(super) type SplitLast = fn(&[u8]) -> (Option<&[u8]>, &[u8]);

/// The elements of all lines of a header, the last one first. What a client has put in front of the elements of the
/// proxies is neither read before them nor able to change how they are read.
pub(super) fn from_the_right<'a>(
    lines: impl DoubleEndedIterator<Item = &'a [u8]>,
    split_last: SplitLast,
) -> impl Iterator<Item = &'a [u8]> {
    let mut lines = lines.rev();
    let mut rest = None;
    let mut bytes_left = MOST_BYTES;
    let elements = std::iter::from_fn(move || {
        let line = match rest.take() {
            Some(line) => line,
            None => lines.next()?,
        };
        let read_from = line.len().saturating_sub(bytes_left);
        let (before, element) = split_last(line.get(read_from..)?);
        match before {
            Some(before) => rest = line.get(..read_from + before.len()),
            // The element is cut.
            None if read_from > 0 => return None,
            None => {}
        }
        bytes_left = bytes_left.saturating_sub(element.len() + 1);
        Some(element)
    });
    elements.take(MOST_ELEMENTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::client_ip::x_forwarded_for::split_last;

    fn read(lines: &[&str]) -> Vec<String> {
        let lines = lines.iter().map(|line| line.as_bytes());
        let elements = from_the_right(lines, split_last);
        elements
            .map(|element| String::from_utf8(element.to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn all_lines_are_one_list() {
        assert_eq!(read(&["a,b", "", "c"]), ["c", "", "b", "a"]);
        assert_eq!(read(&[]), [""; 0]);
    }

    #[test]
    fn no_more_than_32_elements_are_read() {
        let line = "x,".repeat(100);
        assert_eq!(read(&[&line, "a,b"]).len(), MOST_ELEMENTS);
    }

    #[test]
    fn no_more_than_8_kib_are_read() {
        let long = "A".repeat(3 * 1024);
        assert_eq!(read(&[&long, &long, &long]).len(), 2);
        assert_eq!(read(&[&format!("{long},{long},{long}")]).len(), 2);
        assert_eq!(read(&[&"A".repeat(64 * 1024), "b"]), ["b"]);
    }
}
