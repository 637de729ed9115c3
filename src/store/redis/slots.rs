//! Which slot of a cluster a name lies in.

/// How many slots there are.
pub(super) const SLOTS: usize = 16_384;

/// The slot of a name: that of its hash tag, when it has one.
pub(super) fn slot_of(name: &str) -> u16 {
    let tag = name.split_once('{').and_then(|(_, rest)| {
        let (tag, _) = rest.split_once('}')?;
        (!tag.is_empty()).then_some(tag)
    });
    let slots = u16::try_from(SLOTS).unwrap_or(u16::MAX);
    crc16(tag.unwrap_or(name).as_bytes()) % slots
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let mut crc = crc ^ (u16::from(*byte) << 8);
        for _ in 0..8 {
            let is_odd = crc & 0x8000 != 0;
            crc <<= 1;
            if is_odd {
                crc ^= 0x1021;
            }
        }
        crc
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(
            slot_of("{user1000}.following"),
            slot_of("{user1000}.followers")
        );
        assert_eq!(slot_of("foo{}{bar}"), slot_of("foo{}{bar}"));
        assert_ne!(slot_of("foo{}{bar}"), slot_of("bar"));
        assert_eq!(slot_of("foo{{bar}}zap"), slot_of("{bar"));
    }
}
