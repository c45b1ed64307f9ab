//! Accesses to memory.

use half::f16;

use super::control::join;
use super::{Group, Machine};
use crate::code::{Access, Memory, OUTSIDE, Op, Reg, Rmw};
use crate::finding::{Fault, Finding, Other};
use crate::types::{Kind, Leaf, Length};

/// What an invocation reads where it must not.
const NOTHING: u32 = 0;

impl Machine<'_> {
    pub(super) fn memory(&mut self, group: &mut Group, op: &Op) {
        match *op {
            Op::Gather { to, index, ref of } => {
                let mut column = Self::take(group, to);
                let indices = self.column(group, index);
                let mut wrong = None;
                group.active.each(|lane| match of.get(indices[lane] as usize) {
                    Some(from) => column[lane] = self.column(group, *from)[lane],
                    None => {
                        column[lane] = NOTHING;
                        wrong.get_or_insert((lane, indices[lane]));
                    }
                });
                Self::put(group, to, column);
                if let Some((lane, index)) = wrong {
                    let what = format!("index {index} into a value of {} elements", of.len());
                    self.find(group, Fault::OutOfBounds, Some(lane), what);
                }
            }
            Op::Index { to, offset, index, stride, length, array } => {
                let mut column = Self::take(group, to);
                let length = match (length, array) {
                    (Length::Known(n), _) => n,
                    (Length::Runtime, Some((buffer, at))) => self.elements(buffer, at, stride),
                    (Length::Runtime, None) => 0,
                };
                let indices = self.column(group, index);
                let offsets = offset.map(|offset| self.column(group, offset));
                group.active.each(|lane| {
                    let before = offsets.map_or(0, |offsets| offsets[lane]);
                    column[lane] = match indices[lane] < length && before != OUTSIDE {
                        true => before + indices[lane] * stride,
                        false => OUTSIDE,
                    };
                });
                Self::put(group, to, column);
            }
            Op::ArrayLength { to, buffer, at, stride } => {
                let elements = self.elements(buffer, at, stride);
                let mut column = Self::take(group, to);
                column.fill(elements);
                Self::put(group, to, column);
            }
            Op::Load { access, to } => self.load(group, access, to),
            Op::Store { access, ref from } => self.store(group, access, from),
            Op::Atomic { access, what, kind, value, to } => {
                self.atomic(group, access, what, kind, value, to);
            }
            Op::Uniform { access } => {
                let offset = self.program.accesses[access as usize].offset;
                let Some(offsets) = offset.map(|offset| self.column(group, offset)) else { return };
                let Some(first) = group.active.lowest() else { return };
                let mut other = None;
                group.active.each(|lane| {
                    if offsets[lane] != offsets[first] {
                        other.get_or_insert(lane);
                    }
                });
                if let Some(other) = other {
                    let what = format!(
                        "workgroupUniformLoad: invocations {first} and {other} load different \
                         elements"
                    );
                    self.find(group, Fault::Divergence, Some(first), what);
                }
            }
            _ => {}
        }
    }

    /// Elements of a runtime-sized array.
    fn elements(&self, buffer: u32, at: u32, stride: u32) -> u32 {
        let bytes = self.buffers[buffer as usize].buffer.bytes;
        bytes.saturating_sub(at) / stride.max(1)
    }

    /// Place of a scalar for an invocation; none, and a finding, if it does not exist.
    fn place(&mut self, group: &Group, access: &Access, leaf: &Leaf, lane: usize) -> Option<u32> {
        let offset = access.offset.map_or(0, |offset| self.column(group, offset)[lane]);
        let size = if leaf.kind == Kind::F16 { 2 } else { 4 };
        let end = match access.memory {
            Memory::Buffer(buffer) => self.buffers[buffer as usize].buffer.bytes,
            Memory::Workgroup => 4 * self.program.cells,
            Memory::Columns => u32::MAX,
        };
        let unit = if access.memory == Memory::Workgroup { 4 } else { 1 };
        let at = u64::from(offset) + u64::from(access.at + leaf.at);
        if offset != OUTSIDE && at * unit + size <= u64::from(end) {
            return Some(at as u32);
        }
        let index = access.index.map(|(index, _)| self.column(group, index)[lane]);
        let what = match (offset == OUTSIDE, access.index, index) {
            (true, Some((_, Length::Known(length))), Some(index)) if index >= length => {
                format!("index {} into {length} elements", index as i32)
            }
            (true, _, Some(index)) => {
                format!("index {} is outside of what is bound", index as i32)
            }
            _ => format!("byte {at} of {end}"),
        };
        self.found(group, Fault::OutOfBounds, access, None, index.map(u64::from), lane, None, what);
        None
    }

    /// Adds a finding of a variable.
    #[allow(clippy::too_many_arguments)]
    fn found(
        &mut self,
        group: &Group,
        fault: Fault,
        access: &Access,
        place: Option<u32>,
        index: Option<u64>,
        lane: usize,
        other: Option<(super::Touch, bool)>,
        what: String,
    ) {
        let variable = &self.program.variables[access.name as usize];
        let by_place = place.filter(|_| variable.stride > 0);
        let by_place = by_place.map(|at| u64::from((at - variable.at) / variable.stride));
        let (at, by) = (self.at(group.pc), Self::invocation(group, lane));
        let [x, y, _] = self.grid;
        let other = other.map(|(touch, is_write)| {
            let n = touch.group;
            let workgroup = [n % x, n / x % y, n / x / y];
            let by = crate::Invocation { workgroup, local: touch.lane };
            Other { by, at: touch.at, is_write }
        });
        let key = (fault, at, other.map_or(0, |other| 2 * other.at + u32::from(other.is_write)));
        self.findings.add(key, || Finding {
            fault,
            at,
            variable: Some(variable.name.clone()),
            index: by_place.or(index),
            by,
            other,
            what,
            times: 1,
        });
    }

    fn unwritten(&mut self, group: &Group, access: &Access, place: u32, lane: usize) {
        let what = match access.memory {
            Memory::Workgroup => {
                "workgroup memory is read before anything was written there; \
                                  kernels run without zeroing it"
            }
            _ => "an output is read before anything was written there",
        };
        let place = Some(place);
        self.found(group, Fault::Uninitialised, access, place, None, lane, None, what.to_owned());
    }

    fn raced(
        &mut self,
        group: &Group,
        access: &Access,
        place: u32,
        lane: usize,
        (past, past_writes): (super::Touch, bool),
        writes: bool,
    ) {
        let what = match past.group == group.number {
            true if matches!(access.memory, Memory::Buffer(_)) => "no storageBarrier lies between",
            true => "no workgroupBarrier lies between",
            false => "nothing orders these workgroups",
        };
        let verb = |writes| if writes { "writes" } else { "reads" };
        let what = format!("one {}, the other {}; {what}", verb(writes), verb(past_writes));
        let (place, other) = (Some(place), Some((past, past_writes)));
        self.found(group, Fault::Race, access, place, None, lane, other, what);
    }

    /// Reads a scalar.
    pub(super) fn read(
        &mut self,
        group: &mut Group,
        access: &Access,
        leaf: &Leaf,
        lane: usize,
    ) -> u32 {
        let Some(at) = self.place(group, access, leaf, lane) else { return NOTHING };
        match access.memory {
            Memory::Columns => group.columns[(at - crate::code::FRAME) as usize][lane],
            Memory::Workgroup => {
                if !group.written[at as usize] {
                    self.unwritten(group, access, at, lane);
                }
                if !leaf.is_atomic {
                    let now = self.now(group, lane, false, false).touch;
                    let now = super::Now { touch: now, width: self.options.width, clock: &[] };
                    if let Some(past) = group.shadow.read(at, &now) {
                        self.raced(group, access, at, lane, (past, true), false);
                    }
                }
                group.cells[at as usize]
            }
            Memory::Buffer(buffer) => {
                let is_half = leaf.kind == Kind::F16;
                let coherent = self.buffers[buffer as usize].of.coherent;
                if !self.buffers[buffer as usize].buffer.is_written(at, is_half) {
                    self.unwritten(group, access, at, lane);
                }
                let now = self.now(group, lane, true, coherent);
                let bound = &mut self.buffers[buffer as usize];
                let mut past = None;
                if let Some(shadow) = bound.shadow.as_mut().filter(|_| !leaf.is_atomic) {
                    // `locations` borrows `bound`, which lends its shadow.
                    let halves = bound.of.halves;
                    for location in super::memory::locations(halves, at, is_half) {
                        past = past.or(shadow.read(location, &now));
                    }
                }
                let bits = bound.buffer.get(at, is_half);
                if let Some(past) = past {
                    self.raced(group, access, at, lane, (past, true), false);
                }
                if is_half { f16::from_bits(bits as u16).to_f32().to_bits() } else { bits }
            }
        }
    }

    /// Writes a scalar.
    pub(super) fn write(
        &mut self,
        group: &mut Group,
        access: &Access,
        leaf: &Leaf,
        lane: usize,
        bits: u32,
    ) {
        let Some(at) = self.place(group, access, leaf, lane) else { return };
        let mut raced = None;
        match access.memory {
            Memory::Columns => {
                group.columns[(at - crate::code::FRAME) as usize][lane] = bits;
                return;
            }
            Memory::Workgroup => {
                if !leaf.is_atomic {
                    let now = self.now(group, lane, false, false).touch;
                    let now = super::Now { touch: now, width: self.options.width, clock: &[] };
                    raced = group.shadow.write(at, &now);
                }
                group.cells[at as usize] = bits;
                group.written[at as usize] = true;
            }
            Memory::Buffer(buffer) => {
                let is_half = leaf.kind == Kind::F16;
                let coherent = self.buffers[buffer as usize].of.coherent;
                let now = self.now(group, lane, true, coherent);
                let bound = &mut self.buffers[buffer as usize];
                let halves = bound.of.halves;
                if let Some(shadow) = bound.shadow.as_mut().filter(|_| !leaf.is_atomic) {
                    for location in super::memory::locations(halves, at, is_half) {
                        raced = raced.or(shadow.write(location, &now));
                    }
                }
                let bits = match is_half {
                    true => u32::from(f16::from_f32(f32::from_bits(bits)).to_bits()),
                    false => bits,
                };
                if leaf.is_atomic && bound.buffer.get(at, is_half) == bits {
                    // Nobody waits for what was there before.
                } else {
                    self.progress += 1;
                }
                bound.buffer.set(at, is_half, bits);
            }
        }
        if let Some(past) = raced {
            self.raced(group, access, at, lane, past, true);
        }
    }

    fn load(&mut self, group: &mut Group, access: u32, to: Reg) {
        let program = self.program;
        let access = &program.accesses[access as usize];
        let active = group.active;
        for (i, leaf) in access.leaves.iter().enumerate() {
            let mut column = Self::take(group, to + i as Reg);
            if !self.load_input(group, access, leaf, &mut column) {
                active.each(|lane| column[lane] = self.read(group, access, leaf, lane));
            }
            Self::put(group, to + i as Reg, column);
        }
    }

    /// Loads words of a buffer that nobody writes: there is nothing to note.
    fn load_input(&self, group: &Group, access: &Access, leaf: &Leaf, to: &mut [u32]) -> bool {
        let Memory::Buffer(buffer) = access.memory else { return false };
        let bound = &self.buffers[buffer as usize];
        if bound.shadow.is_some() || bound.buffer.written.is_some() || leaf.kind == Kind::F16 {
            return false;
        }
        let at = access.at + leaf.at;
        let last = bound.buffer.bytes.saturating_sub(4);
        let words = &bound.buffer.words;
        let mut inside = true;
        match access.offset.map(|offset| self.column(group, offset)) {
            None => {
                let word = words.get(at as usize / 4).copied().unwrap_or_default();
                inside = at <= last;
                group.active.each(|lane| to[lane] = word);
            }
            Some(offsets) => group.active.each(|lane| {
                let at = u64::from(offsets[lane]) + u64::from(at);
                match at <= u64::from(last) {
                    true => to[lane] = words[at as usize / 4],
                    false => inside = false,
                }
            }),
        }
        inside
    }

    fn store(&mut self, group: &mut Group, access: u32, from: &[Reg]) {
        let program = self.program;
        let access = &program.accesses[access as usize];
        let order = std::mem::take(&mut group.order);
        for lane in order.iter().map(|lane| *lane as usize) {
            if !group.active.has(lane) {
                continue;
            }
            for (leaf, from) in access.leaves.iter().zip(from) {
                let bits = self.column(group, *from)[lane];
                self.write(group, access, leaf, lane, bits);
            }
        }
        group.order = order;
    }

    fn atomic(
        &mut self,
        group: &mut Group,
        access: u32,
        what: Rmw,
        kind: Kind,
        value: Reg,
        to: Reg,
    ) {
        let program = self.program;
        let access = &program.accesses[access as usize];
        let leaf = Leaf { kind, ..access.leaves[0] };
        let order = std::mem::take(&mut group.order);
        let mut results = Self::take(group, to);
        for lane in order.iter().map(|lane| *lane as usize) {
            if !group.active.has(lane) {
                continue;
            }
            let operand = match what {
                Rmw::Load => NOTHING,
                _ => self.column(group, value)[lane],
            };
            let old = match what {
                Rmw::Store => NOTHING,
                _ => self.read(group, access, &leaf, lane),
            };
            let (signed, of) = (old as i32, operand as i32);
            let new = match what {
                Rmw::Load => None,
                Rmw::Store | Rmw::Exchange => Some(operand),
                Rmw::Add => Some(old.wrapping_add(operand)),
                Rmw::Sub => Some(old.wrapping_sub(operand)),
                Rmw::AddF => Some((f32::from_bits(old) + f32::from_bits(operand)).to_bits()),
                Rmw::And => Some(old & operand),
                Rmw::Or => Some(old | operand),
                Rmw::Xor => Some(old ^ operand),
                Rmw::MinI => Some(signed.min(of) as u32),
                Rmw::MaxI => Some(signed.max(of) as u32),
                Rmw::MinU => Some(old.min(operand)),
                Rmw::MaxU => Some(old.max(operand)),
                Rmw::Compare(expected, exchanged) => {
                    let same = self.column(group, expected)[lane] == old;
                    group.columns[(exchanged - crate::code::FRAME) as usize][lane] =
                        u32::from(same);
                    same.then_some(operand)
                }
            };
            self.order(group, access, &leaf, lane, new.is_some(), what);
            if let Some(new) = new {
                self.write(group, access, &leaf, lane, new);
            }
            results[lane] = old;
        }
        Self::put(group, to, results);
        group.order = order;
    }

    /// Acquires what other workgroups released through an atomic, and releases what this one has
    /// put behind a `storageBarrier`.
    fn order(
        &mut self,
        group: &mut Group,
        access: &Access,
        leaf: &Leaf,
        lane: usize,
        writes: bool,
        what: Rmw,
    ) {
        let Memory::Buffer(buffer) = access.memory else { return };
        let offset = access.offset.map_or(0, |offset| self.column(group, offset)[lane]);
        let place = (buffer, offset.wrapping_add(access.at + leaf.at));
        if !matches!(what, Rmw::Store)
            && let Some(released) = self.releases.get(&place)
        {
            join(&mut group.acquired, released);
        }
        if writes {
            let mut known = group.coherent.clone();
            if let Some(own) = known.get_mut(group.number as usize) {
                *own = group.storage_time;
            }
            let released = self.releases.entry(place).or_default();
            if matches!(what, Rmw::Store) || released.is_empty() {
                *released = known;
            } else {
                join(released, &known);
            }
        }
    }
}
