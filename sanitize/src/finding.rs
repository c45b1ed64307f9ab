//! Findings of a run.

use std::collections::HashMap;
use std::fmt;

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// Two invocations access one memory location, one of them writes, and nothing orders them.
    Race,
    /// Memory is read that nothing has written.
    Uninitialised,
    /// A barrier or a subgroup operation is not reached by every invocation.
    Divergence,
    /// An index is outside of its array, vector, matrix or binding.
    OutOfBounds,
    /// An integer is divided by zero, or overflows in a division.
    Division,
    /// A float has no counterpart in the integer type that it is converted to.
    Conversion,
    /// An integer is shifted by its width or more.
    Shift,
    /// A finite value becomes infinite as an f16.
    HalfOverflow,
    /// An output depends on a subgroup operation: of a run with [`crate::Options::traces`].
    SubgroupSize,
    /// A loop does not end.
    NoProgress,
}

impl Fault {
    /// Name in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Race => "race",
            Self::Uninitialised => "uninitialised",
            Self::Divergence => "divergence",
            Self::OutOfBounds => "out_of_bounds",
            Self::Division => "division",
            Self::Conversion => "conversion",
            Self::Shift => "shift",
            Self::HalfOverflow => "f16_overflow",
            Self::SubgroupSize => "subgroup_size",
            Self::NoProgress => "no_progress",
        }
    }
}

/// An invocation of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// `workgroup_id`
    pub workgroup: [u32; 3],
    /// `local_invocation_index`
    pub local: u32,
}

impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.workgroup;
        write!(f, "invocation {} of workgroup ({x}, {y}, {z})", self.local)
    }
}

/// The earlier one of two accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// The invocation.
    pub by: Invocation,
    /// Byte of the source at which its access begins.
    pub at: u32,
    /// It writes.
    pub is_write: bool,
}

/// A fault with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Kind.
    pub fault: Fault,
    /// Byte of the source at which it begins.
    pub at: u32,
    /// Bytes of the calls that lead there, innermost first.
    pub calls: Vec<u32>,
    /// Variable.
    pub variable: Option<String>,
    /// Element of it.
    pub index: Option<u64>,
    /// The invocation, the first one that was seen.
    pub by: Invocation,
    /// The invocation that it collides with.
    pub other: Option<Other>,
    /// One sentence.
    pub what: String,
    /// Number of times that it was seen at these places of the source.
    pub times: u64,
}

/// Line of a byte of a source, from 1.
pub fn line(text: &str, at: u32) -> u32 {
    let before = &text.as_bytes()[..(at as usize).min(text.len())];
    1 + before.iter().filter(|b| **b == b'\n').count() as u32
}

/// Findings, one for each pair of places in the source.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) all: Vec<Finding>,
    known: HashMap<Key, usize>,
}

/// Fault and places in the source.
pub(crate) type Key = (Fault, u32, u32);

impl Findings {
    /// Counts a finding; `make` describes the first one of its places.
    pub(crate) fn add(&mut self, key: Key, make: impl FnOnce() -> Finding) {
        if let Some(known) = self.known.get(&key) {
            self.all[*known].times += 1;
            return;
        }
        self.known.insert(key, self.all.len());
        self.all.push(make());
    }
}
