//! Operations over the lanes of a subgroup.

use super::{Group, Machine};
use crate::code::{Fold, From, Op, Span};
use crate::finding::Fault;

impl Machine<'_> {
    pub(super) fn subgroup(&mut self, group: &mut Group, op: &Op) {
        self.whole_subgroups(group, "the subgroup operation");
        if let Op::Ballot { from: Some(column), .. } = *op {
            self.uses(group, column);
        }
        let width = self.options.width as usize;
        let active = group.active;
        let lanes = |first: usize| {
            (first..(first + width).min(self.lanes)).filter(|lane| active.has(*lane))
        };
        match *op {
            Op::Fold { what, span, to, from } => {
                let (mut column, mut taint) = (Self::take(group, to), vec![0; self.lanes]);
                let (values, numbers) = (self.column(group, from), group.taint(from));
                for first in (0..self.lanes).step_by(width) {
                    let mut sum = (identity(what), 0);
                    let mut set = |lane: usize, sum| (column[lane], taint[lane]) = sum;
                    for lane in lanes(first) {
                        if span == Span::Exclusive {
                            set(lane, sum);
                        }
                        let number =
                            if sum.1 != 0 { sum.1 } else { numbers.map_or(0, |n| n[lane]) };
                        sum = (fold(what, sum.0, values[lane]), number);
                        if span == Span::Inclusive {
                            set(lane, sum);
                        }
                    }
                    if span == Span::All {
                        lanes(first).for_each(|lane| set(lane, sum));
                    }
                }
                Self::put(group, to, column);
                group.set_taint(to, taint.iter().any(|n| *n != 0).then_some(taint));
            }
            Op::Ballot { to, from } => {
                let mut columns = [0, 1, 2, 3].map(|i| Self::take(group, to + i));
                let values = from.map(|from| self.column(group, from));
                for first in (0..self.lanes).step_by(width) {
                    let mut ballot = [0u32; 4];
                    for lane in lanes(first) {
                        let bit = lane - first;
                        let is_set = values.is_none_or(|values| values[lane] != 0);
                        ballot[bit / 32] |= u32::from(is_set) << (bit % 32);
                    }
                    for lane in lanes(first) {
                        columns.iter_mut().zip(ballot).for_each(|(c, word)| c[lane] = word);
                    }
                }
                for (i, column) in columns.into_iter().enumerate() {
                    Self::put(group, to + i as u32, column);
                    group.set_taint(to + i as u32, None);
                }
            }
            Op::Move { mode, to, from } => {
                let (mut column, mut taint) = (Self::take(group, to), vec![0; self.lanes]);
                let (values, numbers) = (self.column(group, from), group.taint(from));
                let by = match mode {
                    From::Lane(at)
                    | From::Down(at)
                    | From::Up(at)
                    | From::Xor(at)
                    | From::Quad(at) => Some(self.column(group, at)),
                    From::First | From::Swap(_) => None,
                };
                let mut wrong = Vec::new();
                active.each(|lane| {
                    let (first, own) = (lane / width * width, lane % width);
                    let by = by.map_or(0, |by| by[lane] as usize);
                    let source = match mode {
                        From::First => lanes(first).next().map(|lane| lane - first),
                        From::Lane(_) => Some(by),
                        From::Down(_) => own.checked_add(by),
                        From::Up(_) => own.checked_sub(by),
                        From::Xor(_) => Some(own ^ by),
                        From::Quad(_) => Some(own / 4 * 4 + by % 4),
                        From::Swap(by) => Some(own ^ by as usize),
                    };
                    // A lane that is not there gives an indeterminate value: what is never right.
                    let named = source;
                    let source = source.filter(|lane| {
                        *lane < width && first + lane < self.lanes && active.has(first + lane)
                    });
                    if source.is_none() {
                        wrong.push((lane, named));
                    }
                    column[lane] = source.map_or(0x7fc0_dead, |source| values[first + source]);
                    let number = |source: usize| numbers.map_or(0, |n| n[first + source]);
                    taint[lane] = source.map_or(0, number);
                });
                Self::put(group, to, column);
                group.set_taint(to, taint.iter().any(|n| *n != 0).then_some(taint));
                for (lane, named) in wrong {
                    let what = match named {
                        Some(named) if named >= width => {
                            format!("lane {named} of a subgroup of {width}")
                        }
                        Some(named) => format!("lane {named}, which is not active"),
                        None => "a lane below zero".to_owned(),
                    };
                    self.mark(group, Fault::OutOfBounds, to, lane, what);
                }
            }
            _ => {}
        }
        if self.options.traces {
            let (to, count) = match *op {
                Op::Ballot { to, .. } => (to, 4),
                Op::Fold { to, .. } | Op::Move { to, .. } => (to, 1),
                _ => return,
            };
            for column in to..to + count {
                let what = "outputs depend on this operation, which spans the subgroup".to_owned();
                active.each(|lane| {
                    self.mark(group, Fault::SubgroupSize, column, lane, what.clone());
                });
            }
        }
    }
}

fn identity(what: Fold) -> u32 {
    match what {
        Fold::All | Fold::MulI => 1,
        Fold::MulF => 1f32.to_bits(),
        Fold::And | Fold::MinU => u32::MAX,
        Fold::MinI => i32::MAX as u32,
        Fold::MaxI => i32::MIN as u32,
        Fold::MinF => f32::INFINITY.to_bits(),
        Fold::MaxF => f32::NEG_INFINITY.to_bits(),
        Fold::Any | Fold::AddF | Fold::AddI | Fold::MaxU | Fold::Or | Fold::Xor => 0,
    }
}

fn fold(what: Fold, a: u32, b: u32) -> u32 {
    let float = |of: fn(f32, f32) -> f32| of(f32::from_bits(a), f32::from_bits(b)).to_bits();
    match what {
        Fold::All | Fold::And => a & b,
        Fold::Any | Fold::Or => a | b,
        Fold::Xor => a ^ b,
        Fold::AddF => float(|a, b| a + b),
        Fold::MulF => float(|a, b| a * b),
        Fold::MinF => float(super::columns::min),
        Fold::MaxF => float(super::columns::max),
        Fold::AddI => a.wrapping_add(b),
        Fold::MulI => a.wrapping_mul(b),
        Fold::MinI => (a as i32).min(b as i32) as u32,
        Fold::MaxI => (a as i32).max(b as i32) as u32,
        Fold::MinU => a.min(b),
        Fold::MaxU => a.max(b),
    }
}
