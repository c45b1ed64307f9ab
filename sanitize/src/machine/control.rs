//! Control flow, barriers, and checks of arithmetic.

use super::{FRESH, Group, MOST_ROUNDS, Machine, Mask, Stop, TURN};
use crate::code::{Bin, Op, Reg, Un};
use crate::finding::Fault;

impl Machine<'_> {
    pub(super) fn control(&mut self, group: &mut Group, op: &Op) -> Option<Stop> {
        let top = group.frames.len().wrapping_sub(1);
        match *op {
            Op::If { condition, otherwise } => {
                self.uses(group, condition);
                let yes = Mask::of(self.column(group, condition)).and(group.active);
                group.frames.push(super::Frame { waiting: group.active.without(yes), ..FRESH });
                group.active = yes;
                if yes.is_empty() {
                    group.pc = otherwise as usize - 1;
                }
            }
            Op::Else { end } => {
                let frame = &mut group.frames[top];
                frame.done = group.active;
                group.active = frame.waiting;
                if group.active.is_empty() {
                    group.pc = end as usize - 1;
                }
            }
            Op::Loop | Op::Call => group.frames.push(FRESH),
            Op::Switch => {
                group.frames.push(super::Frame { waiting: group.active, ..FRESH });
                group.active = Mask::EMPTY;
            }
            Op::Case { selector, ref values, is_default, next } => {
                self.uses(group, selector);
                let (column, waiting) = (self.column(group, selector), group.frames[top].waiting);
                let mut matching = Mask::EMPTY;
                waiting.each(|lane| {
                    if values.contains(&column[lane]) != is_default {
                        matching.insert(lane);
                    }
                });
                let frame = &mut group.frames[top];
                frame.waiting = waiting.without(matching);
                group.active = matching.or(frame.next);
                frame.next = Mask::EMPTY;
                if group.active.is_empty() {
                    group.pc = next as usize - 1;
                }
            }
            Op::EndCase { falls } => {
                let frame = &mut group.frames[top];
                match falls {
                    true => frame.next = group.active,
                    false => frame.done = frame.done.or(group.active),
                }
                group.active = Mask::EMPTY;
            }
            Op::Break { depth } | Op::Return { depth } => {
                let frame = &mut group.frames[depth as usize];
                frame.done = frame.done.or(group.active);
                group.active = Mask::EMPTY;
            }
            Op::Continue { depth } => {
                let frame = &mut group.frames[depth as usize];
                frame.next = frame.next.or(group.active);
                group.active = Mask::EMPTY;
            }
            Op::Continuing { exit } => {
                let frame = &mut group.frames[top];
                group.active = group.active.or(frame.next);
                frame.next = Mask::EMPTY;
                if group.active.is_empty() {
                    group.pc = exit as usize - 1;
                }
            }
            Op::BreakIf { condition } => {
                self.uses(group, condition);
                let leaves = Mask::of(self.column(group, condition)).and(group.active);
                let frame = &mut group.frames[top];
                frame.done = frame.done.or(leaves);
                group.active = group.active.without(leaves);
            }
            Op::Again { start } if !group.active.is_empty() => {
                let frame = &mut group.frames[top];
                frame.rounds += 1;
                let rounds = frame.rounds;
                self.rounds += 1;
                if rounds >= self.options.rounds || self.rounds >= MOST_ROUNDS {
                    let what = match self.rounds {
                        MOST_ROUNDS.. => format!("no end after {MOST_ROUNDS} rounds of loops"),
                        _ => format!("the loop has not ended after {rounds} rounds"),
                    };
                    self.find(group, Fault::NoProgress, None, what);
                    return Some(Stop::GivenUp);
                }
                group.pc = start as usize - 1;
                // Others may run where it could wait for them: it may count its polls.
                let polled = std::mem::take(&mut group.has_polled);
                let waits = polled || self.program.is_synchronised && rounds.is_multiple_of(TURN);
                return waits.then_some(Stop::Rounds);
            }
            Op::Again { .. } => {}
            Op::EndIf { skip }
            | Op::EndLoop { skip }
            | Op::EndSwitch { skip }
            | Op::EndCall { skip } => {
                let Some(frame) = group.frames.pop() else { return Some(Stop::Done) };
                let stays =
                    if matches!(op, Op::EndLoop { .. }) { Mask::EMPTY } else { group.active };
                group.active = stays.or(frame.done);
                if let Op::EndSwitch { .. } = op {
                    group.active = group.active.or(frame.waiting).or(frame.next);
                }
                if group.active.is_empty() {
                    group.pc = skip as usize - 1;
                }
            }
            Op::Barrier { workgroup, storage, subgroup } if !group.active.is_empty() => {
                if subgroup {
                    self.whole_subgroups(group, "the barrier");
                    let width = self.options.width as usize;
                    group.steps.iter_mut().enumerate().for_each(|(i, step)| {
                        *step += u32::from(group.active.has(i * width));
                    });
                    return None;
                }
                self.whole_workgroup(group, "the barrier");
                group.workgroup_time += u32::from(workgroup);
                group.storage_time += u32::from(storage);
                group.epoch += 1;
                join(&mut group.coherent, &group.acquired);
                if storage {
                    join(&mut group.clock, &group.acquired);
                }
                self.split(group);
                return self.program.is_synchronised.then_some(Stop::Barrier);
            }
            Op::Barrier { .. } => {}
            _ => return Some(Stop::Done),
        }
        None
    }

    /// Finds invocations of the workgroup that are not here.
    pub(super) fn whole_workgroup(&mut self, group: &Group, what: &str) {
        let Some(missing) = self.full.without(group.active).lowest() else { return };
        let lane = group.active.lowest().unwrap_or_default();
        let what = format!("invocation {lane} reaches {what}, invocation {missing} does not");
        self.find(group, Fault::Divergence, Some(lane), what);
    }

    /// Finds subgroups of which some invocations are here and some are not.
    pub(super) fn whole_subgroups(&mut self, group: &Group, what: &str) {
        if group.active == self.full {
            return;
        }
        let width = self.options.width as usize;
        for first in (0..self.lanes).step_by(width) {
            let lanes = first..(first + width).min(self.lanes);
            let here = lanes.clone().find(|lane| group.active.has(*lane));
            let missing = lanes.clone().find(|lane| !group.active.has(*lane));
            if let (Some(lane), Some(missing)) = (here, missing) {
                let what = format!(
                    "with subgroups of {width}, invocation {lane} reaches {what}, invocation \
                     {missing} of its subgroup does not"
                );
                self.find(group, Fault::Divergence, Some(lane), what);
                return;
            }
        }
    }

    /// Marks results that WGSL, or a back end without run-time checks, leaves open.
    pub(super) fn check_integers(&mut self, group: &mut Group, op: Bin, to: Reg, [a, b]: [Reg; 2]) {
        let (fault, is_signed) = match op {
            Bin::DivI | Bin::RemI => (Fault::Division, true),
            Bin::DivU | Bin::RemU => (Fault::Division, false),
            Bin::Shl | Bin::ShrI | Bin::ShrU => (Fault::Shift, false),
            _ => return,
        };
        let (left, right) = (self.column(group, a), self.column(group, b));
        let overflows = |lane: usize| is_signed && left[lane] == 1 << 31 && right[lane] == u32::MAX;
        let wrong = self.lanes_where(group, |lane| match fault {
            Fault::Shift => right[lane] >= 32,
            _ => right[lane] == 0 || overflows(lane),
        });
        for lane in wrong {
            let what = match (fault, self.column(group, b)[lane]) {
                (Fault::Shift, by) => format!("an integer of 32 bits is shifted by {by}"),
                (_, 0) => "an integer is divided by zero".to_owned(),
                _ => "the least integer is divided by -1".to_owned(),
            };
            self.mark(group, fault, to, lane, what);
        }
    }

    /// The same of conversions, with their results.
    pub(super) fn check_conversion(&mut self, group: &mut Group, op: Un, to: Reg, a: Reg) {
        let (from, result) = (self.column(group, a), self.column(group, to));
        let wrong = self.lanes_where(group, |lane| {
            let v = f32::from_bits(from[lane]);
            match op {
                Un::FToInt => !(-2_147_483_648.0..2_147_483_648.0).contains(&v.trunc()),
                Un::FToUint => !(0.0..4_294_967_296.0).contains(&(v.trunc() + 0.0)),
                Un::HalfBits => v.is_finite() && result[lane] & 0x7fff == 0x7c00,
                _ => v.is_finite() && f32::from_bits(result[lane]).is_infinite(),
            }
        });
        let (fault, ty) = match op {
            Un::FToInt => (Fault::Conversion, "i32"),
            Un::FToUint => (Fault::Conversion, "u32"),
            _ => (Fault::HalfOverflow, "f16"),
        };
        for lane in wrong {
            let value = f32::from_bits(self.column(group, a)[lane]);
            self.mark(group, fault, to, lane, format!("{value} is outside of the values of {ty}"));
        }
    }

    fn lanes_where(&self, group: &Group, is: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut lanes = Vec::new();
        group.active.each(|lane| {
            if is(lane) {
                lanes.push(lane);
            }
        });
        lanes
    }

    /// A lane of a column is a fault if anything depends on it.
    pub(super) fn mark(
        &mut self,
        group: &mut Group,
        fault: Fault,
        to: Reg,
        lane: usize,
        what: String,
    ) {
        let (key, finding) = self.bare(group, fault, lane, what);
        let number = self.suspects.add(key, || finding);
        group.set_lane(to, lane, number);
    }
}

/// Knows what either clock knows.
pub(super) fn join(clock: &mut [u32], other: &[u32]) {
    for (a, b) in clock.iter_mut().zip(other) {
        *a = (*a).max(*b);
    }
}
