//! Memory of a dispatch: buffers, and the cells of a workgroup.

use super::shadow::Shadow;
use crate::Error;
use crate::lower::BufferUse;

/// A buffer bound to a dispatch.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Content as little-endian words.
    pub words: Vec<u32>,
    /// Bytes of the binding; at most those of its words.
    pub bytes: u32,
    /// By 16 bits: written, by the host or by a shader. None: all were.
    pub written: Option<Vec<bool>>,
}

impl Buffer {
    /// A buffer with content.
    pub fn filled(words: Vec<u32>) -> Self {
        let bytes = 4 * words.len() as u32;
        Self { words, bytes, written: None }
    }

    /// A buffer that nothing was written to. Its bits are `words`.
    pub fn unwritten(words: Vec<u32>) -> Self {
        let halves = 2 * words.len();
        Self { written: Some(vec![false; halves]), ..Self::filled(words) }
    }

    pub(super) fn get(&self, byte: u32, is_half: bool) -> u32 {
        let word = self.words[(byte / 4) as usize];
        match is_half {
            true => u32::from((word >> (8 * (byte % 4))) as u16),
            false => word,
        }
    }

    pub(super) fn set(&mut self, byte: u32, is_half: bool, bits: u32) {
        let word = &mut self.words[(byte / 4) as usize];
        if is_half {
            let by = 8 * (byte % 4);
            *word = *word & !(0xffff << by) | (bits & 0xffff) << by;
        } else {
            *word = bits;
        }
        if let Some(written) = &mut self.written {
            let first = (byte / 2) as usize;
            written[first] = true;
            if !is_half {
                written[first + 1] = true;
            }
        }
    }

    pub(super) fn is_written(&self, byte: u32, is_half: bool) -> bool {
        let first = (byte / 2) as usize;
        self.written.as_ref().is_none_or(|w| w[first] && (is_half || w[first + 1]))
    }
}

/// A buffer while a dispatch runs.
#[derive(Debug)]
pub(super) struct Bound<'a> {
    pub(super) of: &'a BufferUse,
    pub(super) buffer: &'a mut Buffer,
    /// None where nobody can write.
    pub(super) shadow: Option<Shadow>,
}

impl<'a> Bound<'a> {
    pub(super) fn new(
        of: &'a BufferUse,
        buffer: &'a mut Buffer,
        is_synchronised: bool,
    ) -> Result<Self, Error> {
        let least = of.least_bytes;
        if buffer.bytes < least || buffer.bytes as usize > 4 * buffer.words.len() {
            return Err(Error::Dispatch(format!(
                "`{}` is bound to {} bytes and needs {least}",
                of.name, buffer.bytes
            )));
        }
        let locations = buffer.words.len() * if of.halves { 2 } else { 1 };
        let shadow = of.writable.then(|| Shadow::new(locations, is_synchronised));
        Ok(Self { of, buffer, shadow })
    }
}

/// Locations that a scalar covers: words, or halves of them.
pub(super) fn locations(halves: bool, byte: u32, is_half: bool) -> std::ops::Range<u32> {
    match (halves, is_half) {
        (false, _) => byte / 4..byte / 4 + 1,
        (true, true) => byte / 2..byte / 2 + 1,
        (true, false) => byte / 2..byte / 2 + 2,
    }
}
