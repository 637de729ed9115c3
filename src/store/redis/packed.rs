//! `MessagePack`, as far as scripts are asked in it: whole numbers, texts, nothing, and lists of them.

/// A message that is written.
#[derive(Debug, Default)]
pub(super) struct Packed(Vec<u8>);

impl Packed {
    /// Begins a list of so many things, which follow.
    pub(super) fn list(&mut self, length: usize) -> &mut Self {
        match u32::try_from(length).unwrap_or(u32::MAX) {
            length @ 0..=15 => self.0.push(0x90 | length.to_le_bytes()[0]),
            length => self.tagged(0xdd, &length.to_be_bytes()),
        }
        self
    }

    pub(super) fn number(&mut self, number: i64) -> &mut Self {
        match u32::try_from(number) {
            Ok(number @ 0..=127) => self.0.push(number.to_le_bytes()[0]),
            Ok(number) => self.tagged(0xce, &number.to_be_bytes()),
            Err(_) => self.tagged(0xd3, &number.to_be_bytes()),
        }
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        match u32::try_from(text.len()).unwrap_or(u32::MAX) {
            length @ 0..=31 => self.0.push(0xa0 | length.to_le_bytes()[0]),
            length => self.tagged(0xdb, &length.to_be_bytes()),
        }
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    pub(super) fn nothing(&mut self) -> &mut Self {
        self.0.push(0xc0);
        self
    }

    /// A list of numbers.
    pub(super) fn numbers(&mut self, numbers: &[i64]) -> &mut Self {
        self.list(numbers.len());
        for number in numbers {
            self.number(*number);
        }
        self
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.0.push(tag);
        self.0.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_the_specification_says() {
        let mut packed = Packed::default();
        packed.list(6).number(127).number(128).number(-1);
        packed.text("ab").nothing().numbers(&[1 << 40]);
        let expected = [
            &[0x96, 127, 0xce, 0, 0, 0, 128, 0xd3][..],
            &[0xff; 8],
            &[0xa2, b'a', b'b', 0xc0, 0x91, 0xd3, 0, 0, 1, 0, 0, 0, 0, 0],
        ];
        assert_eq!(packed.into_bytes(), expected.concat());
    }

    #[test]
    fn what_is_long_has_its_length_in_four_bytes() {
        let mut packed = Packed::default();
        packed.text(&"x".repeat(300)).list(16);
        let bytes = packed.into_bytes();
        assert_eq!(bytes[..5], [0xdb, 0, 0, 1, 44]);
        assert_eq!(bytes[305..], [0xdd, 0, 0, 0, 16]);
    }
}
