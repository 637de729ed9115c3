//! How much is in a WAL, read from its file: the file stays long when SQLite begins it anew.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

const HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: u64 = 24;

/// A WAL between two times that it begins anew.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Frames {
    /// Of this beginning; each frame has it too, and those that are left of an earlier one another.
    salt: [u8; 8],
    count: u64,
}

impl Frames {
    /// Reads them, some 15 times a few bytes. SQLite has no locks on this file that closing it again could drop.
    pub(super) fn read(wal: &Path) -> io::Result<Self> {
        let mut file = File::open(wal)?;
        let bytes = file.metadata()?.len();
        if bytes < HEADER_BYTES {
            return Ok(Self::default());
        }
        let page: [u8; 4] = read_at(&mut file, 8)?;
        let salt: [u8; 8] = read_at(&mut file, 16)?;
        let frame_bytes = FRAME_HEADER_BYTES + u64::from(u32::from_be_bytes(page));
        let (mut count, mut end) = (0, (bytes - HEADER_BYTES) / frame_bytes);
        while count < end {
            let middle = count + (end - count) / 2;
            let salt_at = HEADER_BYTES + middle * frame_bytes + 8;
            if read_at(&mut file, salt_at)? == salt {
                count = middle + 1;
            } else {
                end = middle;
            }
        }
        Ok(Self { salt, count })
    }

    /// How many came since an earlier look.
    pub(super) fn since(self, earlier: Self) -> u64 {
        if self.salt == earlier.salt {
            self.count.saturating_sub(earlier.count)
        } else {
            self.count
        }
    }
}

fn read_at<const N: usize>(file: &mut File, at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}
