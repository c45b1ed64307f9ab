//! Memory of a dispatch: buffers, and the cells of a workgroup.

use std::collections::HashMap;

use super::shadow::Shadow;
use crate::lower::BufferUse;

/// A buffer bound to a dispatch.
#[derive(Clone, Debug, Default)]
pub struct Buffer {
    /// Content as little-endian words.
    pub words: Vec<u32>,
    /// Bytes of the binding; at most those of its words.
    pub bytes: u32,
    /// By 16 bits: written, by the host or by a shader. None: all were.
    pub written: Option<Vec<bool>>,
    /// Bound as a part of another buffer of the dispatch: its number and the first byte.
    pub part_of: Option<(usize, u32)>,
}

impl Buffer {
    /// A buffer with content.
    pub fn filled(words: Vec<u32>) -> Self {
        let bytes = 4 * words.len() as u32;
        Self { words, bytes, ..Self::default() }
    }

    /// A buffer that nothing was written to. Its bits are `words`.
    pub fn unwritten(words: Vec<u32>) -> Self {
        let halves = 2 * words.len();
        Self { written: Some(vec![false; halves]), ..Self::filled(words) }
    }

    /// A binding of `bytes` bytes of the dispatch's buffer `of`.
    pub fn part(of: usize, first: u32, bytes: u32) -> Self {
        Self { bytes, part_of: Some((of, first)), ..Self::default() }
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

/// A buffer, or the memory of a workgroup, while a dispatch runs.
#[derive(Debug, Default)]
pub(super) struct Region {
    pub(super) buffer: Buffer,
    /// None where nobody can write.
    pub(super) shadow: Option<Shadow>,
    /// Halves of a word are locations of their own.
    halves: bool,
    pub(super) coherent: bool,
    /// Faults that cells carry.
    pub(super) taints: HashMap<u32, u32>,
}

impl Region {
    /// `of`: this use and those of its parts.
    pub(super) fn of_buffer(of: &[&BufferUse], buffer: Buffer, is_synchronised: bool) -> Self {
        let halves = of.iter().any(|of| of.halves);
        let locations = buffer.words.len() * if halves { 2 } else { 1 };
        let is_written = of.iter().any(|of| of.writable);
        let shadow = is_written.then(|| Shadow::new(locations, is_synchronised));
        Self { buffer, shadow, halves, coherent: of[0].coherent, taints: HashMap::new() }
    }

    /// Words that nothing has written: wgpu runs these kernels without zeroing them first.
    pub(super) fn of_workgroup(words: usize) -> Self {
        let buffer = Buffer::unwritten(vec![GARBAGE; words]);
        let shadow = Some(Shadow::new(words, false));
        Self { buffer, shadow, halves: false, coherent: false, taints: HashMap::new() }
    }

    /// Locations that a scalar covers: words, or halves of them.
    pub(super) fn locations(&self, byte: u32, is_half: bool) -> std::ops::Range<u32> {
        match (self.halves, is_half) {
            (false, _) => byte / 4..byte / 4 + 1,
            (true, true) => byte / 2..byte / 2 + 1,
            (true, false) => byte / 2..byte / 2 + 2,
        }
    }
}

/// A NaN: what is never right.
pub(super) const GARBAGE: u32 = 0x7fc0_dead;
