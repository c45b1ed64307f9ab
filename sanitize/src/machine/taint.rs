//! Values that nothing defines: read where nothing was written, or where another invocation may
//! write. To load one and drop it is no fault, so each carries the number of the fault that it is
//! once it decides a branch or an address, or reaches a buffer.

use std::collections::HashMap;

use super::{Group, Machine};
use crate::code::{FRAME, Reg};
use crate::finding::{Finding, Key};

/// Numbers that are given out before faults of the same places share one.
const MOST: usize = 1 << 16;

/// Number of what a private variable holds at first.
pub(super) const UNWRITTEN: u32 = u32::MAX;

/// Faults that are none unless a value is used.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    all: Vec<(Key, Finding)>,
    last: HashMap<Key, u32>,
}

impl Suspects {
    /// The number of a fault, from 1.
    pub(super) fn add(&mut self, key: Key, make: impl FnOnce() -> Finding) -> u32 {
        if self.all.len() >= MOST
            && let Some(known) = self.last.get(&key)
        {
            return *known;
        }
        self.all.push((key, make()));
        let number = self.all.len() as u32;
        self.last.insert(key, number);
        number
    }
}

/// Numbers by lane; 0 where the value is sound.
pub(super) type Taint = Option<Vec<u32>>;

impl Machine<'_> {
    /// The value with this number is used.
    pub(super) fn confirm(&mut self, number: u32) {
        if let Some((key, finding)) = self.suspects.all.get(number.wrapping_sub(1) as usize) {
            self.findings.add(*key, || finding.clone());
        }
    }

    /// A column decides something in every active lane.
    pub(super) fn uses(&mut self, group: &Group, column: Reg) {
        let Some(taint) = group.taint(column) else { return };
        group.active.each(|lane| self.confirm(taint[lane]));
    }
}

impl Group {
    pub(super) fn taint(&self, column: Reg) -> Option<&Vec<u32>> {
        if !self.has_taints {
            return None;
        }
        column.checked_sub(FRAME).and_then(|at| self.taints[at as usize].as_ref())
    }

    /// Replaces what a column carries.
    pub(super) fn set_taint(&mut self, column: Reg, taint: Taint) {
        self.has_taints |= taint.is_some();
        let lanes = self.lanes.clone();
        let known = &mut self.taints[(column - FRAME) as usize];
        match known {
            // Of lanes that run on their own.
            Some(known) if lanes.len() < known.len() => match taint {
                Some(taint) => known[lanes.clone()].copy_from_slice(&taint[lanes]),
                None => known[lanes].fill(0),
            },
            _ => *known = taint,
        }
    }

    /// A column is made of others.
    pub(super) fn spread(&mut self, to: Reg, from: &[Reg]) {
        if !self.has_taints {
            return;
        }
        let mut all: Taint = None;
        for taint in from.iter().filter_map(|from| self.taint(*from)) {
            match &mut all {
                None => all = Some(taint.clone()),
                Some(all) => {
                    for (a, b) in all.iter_mut().zip(taint) {
                        *a = if *a == 0 { *b } else { *a };
                    }
                }
            }
        }
        self.set_taint(to, all);
    }

    /// A column is a choice of two others.
    pub(super) fn spread_choice(&mut self, to: Reg, condition: Reg, values: &[u32], of: [Reg; 2]) {
        if !self.has_taints {
            return;
        }
        let number = |column: Reg, lane| self.taint(column).map_or(0, |taint| taint[lane]);
        let taint: Vec<u32> = values
            .iter()
            .enumerate()
            .map(|(lane, value)| match number(condition, lane) {
                0 => number(of[usize::from(*value == 0)], lane),
                of_condition => of_condition,
            })
            .collect();
        self.set_taint(to, taint.iter().any(|number| *number != 0).then_some(taint));
    }

    /// The active lanes of a column are written.
    pub(super) fn spread_active(&mut self, to: Reg, from: Reg) {
        if !self.has_taints {
            return;
        }
        let taint = self.taint(from).cloned();
        let at = (to - FRAME) as usize;
        if taint.is_none() && self.taints[at].is_none() {
            return;
        }
        let mut all = self.taints[at].take().unwrap_or_else(|| vec![0; self.columns[at].len()]);
        self.active.each(|lane| all[lane] = taint.as_ref().map_or(0, |taint| taint[lane]));
        self.taints[at] = all.iter().any(|number| *number != 0).then_some(all);
    }

    /// Sets one lane of a column.
    pub(super) fn set_lane(&mut self, column: Reg, lane: usize, number: u32) {
        let at = (column - FRAME) as usize;
        if number == 0 && self.taints[at].is_none() {
            return;
        }
        self.has_taints |= number != 0;
        let lanes = self.columns[at].len();
        self.taints[at].get_or_insert_with(|| vec![0; lanes])[lane] = number;
    }
}
