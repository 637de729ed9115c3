//! `google.rpc.Status` with a `RetryInfo`, as protobuf writes it: OTLP clients retry only when there is one.

/// Where the message's definition is, as `google.protobuf.Any` names it.
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// A status of this code and message, and the wait after which a call may be tried again.
pub(super) fn status_with_retry_info(code: u16, message: &str, wait_millis: u64) -> Vec<u8> {
    let mut delay = Message::default();
    delay.number(1, wait_millis / 1_000);
    delay.number(2, wait_millis % 1_000 * 1_000_000);
    let mut retry_info = Message::default();
    retry_info.bytes(1, &delay.0);
    let mut detail = Message::default();
    detail.bytes(1, RETRY_INFO.as_bytes());
    detail.bytes(2, &retry_info.0);
    let mut status = Message::default();
    status.number(1, code.into());
    status.bytes(2, message.as_bytes());
    status.bytes(3, &detail.0);
    status.0
}

/// A message of the wire format: fields, each with its number and type in front.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    /// A string, bytes, or another message.
    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// Seven bits in each byte, the lowest first; all but the last have the high bit set.
    fn varint(&mut self, mut value: u64) {
        while value > 0x7f {
            self.0.push(lowest_byte(value) | 0x80);
            value >>= 7;
        }
        self.0.push(lowest_byte(value));
    }
}

fn lowest_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use prost::Message as _;
    use tonic_types::RpcStatusExt;

    use super::*;

    proptest! {
        #[test]
        fn another_implementation_reads_what_was_written(
            message in ".{0,300}",
            // What `RetryInfo` can hold: ten thousand years.
            wait_millis in 0..=315_576_000_000_999_u64,
        ) {
            let written = status_with_retry_info(8, &message, wait_millis);
            let status = tonic_types::Status::decode(&*written).unwrap();
            prop_assert_eq!((status.code, &status.message), (8, &message));
            let info = status.get_details_retry_info().unwrap();
            prop_assert_eq!(info.retry_delay, Some(Duration::from_millis(wait_millis)));
        }
    }
}
