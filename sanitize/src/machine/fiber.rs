//! Lanes of a workgroup that run ahead of the others, until the next barrier. What depends on the
//! order of invocations without a race does so through atomics.

use std::ops::Range;

use super::{Frame, Group, Machine, Mask};
use crate::code::Op;

/// Lanes that are not running.
#[derive(Debug)]
pub(super) struct Fiber {
    pc: usize,
    active: Mask,
    frames: Vec<Frame>,
    lanes: Range<usize>,
    is_waiting: bool,
}

/// Returns true where lanes that run on their own wait for the others.
pub(super) fn ends(op: &Op, group: &Group) -> bool {
    !group.others.is_empty()
        && match op {
            Op::End => true,
            Op::Barrier { subgroup, .. } => !subgroup && !group.active.is_empty(),
            _ => false,
        }
}

impl Group {
    fn exchange(&mut self, other: usize) {
        let Fiber { pc, active, frames, lanes, is_waiting } = &mut self.others[other];
        std::mem::swap(&mut self.pc, pc);
        std::mem::swap(&mut self.active, active);
        std::mem::swap(&mut self.frames, frames);
        std::mem::swap(&mut self.lanes, lanes);
        std::mem::swap(&mut self.is_waiting, is_waiting);
    }

    /// Goes on with other lanes; returns false if all wait.
    pub(super) fn switch(&mut self) -> bool {
        let other = self.others.iter().position(|fiber| !fiber.is_waiting);
        other.is_some_and(|other| {
            self.exchange(other);
            true
        })
    }
}

impl Machine<'_> {
    /// Draws lanes that run ahead of the others, and lanes whose writes come first.
    pub(super) fn split(&mut self, group: &mut Group) {
        let program = self.program;
        if !program.has_atomics && !group.order.is_empty() {
            return;
        }
        group.order = self.rng.shuffled(self.lanes as u32);
        let next = program.code.get(group.pc + 1);
        let unit = if program.has_subgroups { self.options.width as usize } else { 1 };
        let units = self.lanes.div_ceil(unit);
        let is_whole = group.others.is_empty() && !matches!(next, Some(Op::Uniform { .. }));
        if !program.has_atomics || !is_whole || units < 2 || self.rng.below(4) == 0 {
            return;
        }
        let cut = unit * (1 + self.rng.below(units - 1));
        let below = Mask::first(cut as u32);
        let above = self.full.without(below);
        let only = |frames: &[Frame], lanes: Mask| -> Vec<Frame> {
            let of = |frame: &Frame| Frame {
                waiting: frame.waiting.and(lanes),
                done: frame.done.and(lanes),
                next: frame.next.and(lanes),
                rounds: frame.rounds,
            };
            frames.iter().map(of).collect()
        };
        // At a barrier those that run now are moved past it by the machine.
        let past = usize::from(matches!(program.code[group.pc], Op::Barrier { .. }));
        group.others.push(Fiber {
            pc: group.pc + past,
            active: group.active.and(above),
            frames: only(&group.frames, above),
            lanes: cut..self.lanes,
            is_waiting: false,
        });
        group.frames = only(&group.frames, below);
        group.active = group.active.and(below);
        group.lanes = 0..cut;
        group.is_waiting = false;
        if self.rng.below(2) == 0 {
            group.exchange(0);
            group.pc -= past;
            group.others[0].pc += past;
        }
    }

    /// These lanes have come to a barrier or to the end. Returns true if others run first. Lanes at
    /// one barrier go on together; where they wait at two, those of the first one do.
    pub(super) fn meet(&mut self, group: &mut Group) -> bool {
        group.is_waiting = true;
        if group.switch() {
            return true;
        }
        if let Some(first) = group.others.iter().position(|fiber| fiber.pc < group.pc) {
            group.exchange(first);
        }
        group.is_waiting = false;
        if let Some(same) = group.others.iter().position(|fiber| fiber.pc == group.pc) {
            let fiber = group.others.swap_remove(same);
            group.active = group.active.or(fiber.active);
            let range =
                group.lanes.start.min(fiber.lanes.start)..group.lanes.end.max(fiber.lanes.end);
            group.lanes = range;
            for (frame, other) in group.frames.iter_mut().zip(fiber.frames) {
                frame.waiting = frame.waiting.or(other.waiting);
                frame.done = frame.done.or(other.done);
                frame.next = frame.next.or(other.next);
                frame.rounds = frame.rounds.max(other.rounds);
            }
        }
        false
    }
}
