//! Accesses to memory.

use half::f16;
use naga::AtomicFunction;

use super::columns::changed;
use super::control::join;
use super::memory::Region;
use super::shadow::{Now, Touch};
use super::taint::{MOST, UNWRITTEN};
use super::{Group, Machine};
use crate::code::{Access, Atomic, FRAME, Memory, OUTSIDE, Op, Reg};
use crate::finding::{Fault, Finding, Key, Other};
use crate::types::{Kind, Leaf, Length};

/// Value that an invocation reads where it must not.
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
                self.uses(group, index);
                if group.has_taints {
                    // A lane takes what its element carries.
                    let chosen = self.column(group, index).to_vec();
                    let number = |(lane, index): (usize, &u32)| {
                        let from = of.get(*index as usize).and_then(|from| group.taint(*from));
                        from.map_or(0, |taint| taint[lane])
                    };
                    let taint: Vec<u32> = chosen.iter().enumerate().map(number).collect();
                    group.set_taint(to, taint.iter().any(|n| *n != 0).then_some(taint));
                }
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
                let from = [offset.unwrap_or(index), index];
                group.spread(to, &from);
            }
            Op::ArrayLength { to, buffer, at, stride } => {
                let elements = self.elements(buffer, at, stride);
                let mut column = Self::take(group, to);
                column[group.lanes.clone()].fill(elements);
                Self::put(group, to, column);
                group.set_taint(to, None);
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
        let size = if is_half(access, leaf) { 2 } else { 4 };
        let (unit, end, first) = match access.memory {
            Memory::Buffer(buffer) => {
                let end = self.buffers[buffer as usize].buffer.bytes;
                (1, end, self.targets[buffer as usize].1)
            }
            Memory::Workgroup => (4, 4 * self.program.cells, 0),
            Memory::Columns | Memory::Private => (1, u32::MAX, 0),
        };
        let at = unit * (u64::from(offset) + u64::from(access.at) + u64::from(leaf.at));
        if offset != OUTSIDE && at + size <= u64::from(end) {
            return Some(first + at as u32);
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
        let fault = Fault::OutOfBounds;
        let (key, finding) = self.describe(group, fault, access, Err(index), lane, None);
        self.findings.add(key, || finding(what));
        None
    }

    /// A fault of a variable, with the places in the source that it is known by.
    fn describe(
        &self,
        group: &Group,
        fault: Fault,
        access: &Access,
        place: Result<u32, Option<u32>>,
        lane: usize,
        other: Option<(Touch, bool)>,
    ) -> (Key, impl FnOnce(String) -> Finding + use<>) {
        let variable = self.program.variables[access.name as usize].clone();
        let (mut pc, mut by) = (group.pc, Self::invocation(group, lane));
        let [x, y, _] = self.grid;
        let mut other = other.map(|(touch, is_write)| {
            let n = touch.group;
            let workgroup = [n % x, n / x % y, n / x / y];
            let by = crate::Invocation { workgroup, local: touch.lane };
            (touch.pc as usize, Other { by, at: self.at(touch.pc as usize), is_write })
        });
        // Workgroups run in any order: the place of a race between them is that of the read.
        if let Some((past, other)) = &mut other
            && !other.is_write
            && other.by.workgroup != by.workgroup
        {
            (*other, by) = (Other { by, at: self.at(pc), is_write: true }, other.by);
            pc = *past;
        }
        let (at, calls, other) = (self.at(pc), self.calls(pc), other.map(|(_, other)| other));
        let key = (fault, at, other.map_or(0, |other| 2 * other.at + u32::from(other.is_write)));
        let (unit, first) = match access.memory {
            Memory::Buffer(buffer) => (1, self.targets[buffer as usize].1),
            Memory::Workgroup => (4, 0),
            Memory::Columns | Memory::Private => (1, 0),
        };
        let finding = move |what| {
            let index = match place {
                Ok(place) if variable.stride > 0 => {
                    Some(((place - first) / unit - variable.at) / variable.stride)
                }
                Ok(_) => None,
                Err(index) => index,
            };
            let (index, variable) = (index.map(u64::from), Some(variable.name));
            Finding { fault, at, calls, variable, index, by, other, what, times: 1 }
        };
        (key, finding)
    }

    fn unwritten(&mut self, group: &Group, access: &Access, place: u32, lane: usize) -> u32 {
        let what = match access.memory {
            Memory::Workgroup => {
                "workgroup memory is read before anything was written there; \
                                  kernels run without zeroing it"
            }
            Memory::Private => {
                "a private variable without an initial value is read before anything was written \
                 there; WGSL makes it zero, other languages do not"
            }
            _ => "an output is read before anything was written there",
        };
        let fault = Fault::Uninitialised;
        let (key, finding) = self.describe(group, fault, access, Ok(place), lane, None);
        self.suspects.add(key, || finding(what.to_owned()))
    }

    /// A fault of two accesses.
    fn race(
        &self,
        group: &Group,
        access: &Access,
        place: u32,
        lane: usize,
        (past, past_writes): (Touch, bool),
        writes: bool,
    ) -> (Key, impl FnOnce() -> Finding + use<>) {
        let between = match past.group == group.number {
            true if matches!(access.memory, Memory::Buffer(_)) => "no storageBarrier lies between",
            true => "no workgroupBarrier lies between",
            false => "nothing orders these workgroups",
        };
        let other = Some((past, past_writes));
        let (key, finding) = self.describe(group, Fault::Race, access, Ok(place), lane, other);
        let (one, two) = match (writes, past_writes) {
            (true, true) => ("writes", "writes"),
            (true, false) if past.group == group.number => ("writes", "reads"),
            _ => ("reads", "writes"),
        };
        (key, move || finding(format!("one {one}, the other {two}; {between}")))
    }

    /// A write that an earlier access is not ordered with.
    fn raced(
        &mut self,
        group: &Group,
        access: &Access,
        place: u32,
        lane: usize,
        past: (Touch, bool),
    ) {
        let (key, finding) = self.race(group, access, place, lane, past, true);
        if past.1 {
            self.findings.add(key, finding);
        } else if !self.is_repeated && self.overtaken.len() < MOST {
            self.overtaken.insert((self.target(access), place, past.0), (key, finding()));
        }
    }

    /// The number that a value which was read carries.
    fn origin(
        &mut self,
        group: &Group,
        access: &Access,
        place: u32,
        lane: usize,
        (is_written, past, touch): (bool, Option<Touch>, Touch),
    ) -> u32 {
        if let Some(past) = past {
            let (key, finding) = self.race(group, access, place, lane, (past, true), false);
            return self.suspects.add(key, finding);
        }
        if !is_written {
            return self.unwritten(group, access, place, lane);
        }
        if self.is_repeated
            && let Some((key, finding)) = self.overtaken.get(&(self.target(access), place, touch))
        {
            return self.suspects.add(*key, || finding.clone());
        }
        0
    }

    /// Reads a scalar, and the number of the fault that it is to use it.
    pub(super) fn read(
        &mut self,
        group: &mut Group,
        access: &Access,
        leaf: &Leaf,
        lane: usize,
    ) -> (u32, u32) {
        let Some(at) = self.place(group, access, leaf, lane) else { return (NOTHING, 0) };
        let width = self.options.width;
        match access.memory {
            Memory::Columns | Memory::Private => {
                let number = match group.taint(at).map_or(0, |taint| taint[lane]) {
                    UNWRITTEN => self.unwritten(group, access, at, lane),
                    number => number,
                };
                (group.columns[(at - FRAME) as usize][lane], number)
            }
            Memory::Workgroup | Memory::Buffer(_) => {
                let touch = self.touch(group, access, lane);
                let half = is_half(access, leaf);
                let (region, clock) = self.region(group, access);
                let (now, mut past) = (Now { touch, width, clock }, None);
                let (locations, is_written) =
                    (region.locations(at, half), region.buffer.is_written(at, half));
                if let Some(shadow) = region.shadow.as_mut().filter(|_| !leaf.is_atomic) {
                    for location in locations {
                        past = past.or(shadow.read(location, &now));
                    }
                }
                let bits = region.buffer.get(at, half);
                let carried = region.taints.get(&at).copied().unwrap_or(0);
                let number = match self.origin(group, access, at, lane, (is_written, past, touch)) {
                    0 => carried,
                    number => number,
                };
                (if half { f16::from_bits(bits as u16).to_f32().to_bits() } else { bits }, number)
            }
        }
    }

    /// Writes a scalar, which carries the number of a fault.
    pub(super) fn write(
        &mut self,
        group: &mut Group,
        access: &Access,
        leaf: &Leaf,
        lane: usize,
        (bits, number): (u32, u32),
    ) {
        let Some(at) = self.place(group, access, leaf, lane) else { return };
        if let Memory::Columns | Memory::Private = access.memory {
            group.columns[(at - FRAME) as usize][lane] = bits;
            group.set_lane(at, lane, number);
            return;
        }
        let is_storage = matches!(access.memory, Memory::Buffer(_));
        if is_storage {
            self.confirm(number);
        }
        let (touch, width) = (self.touch(group, access, lane), self.options.width);
        let half = is_half(access, leaf);
        let bits = match half {
            true => u32::from(f16::from_f32(f32::from_bits(bits)).to_bits()),
            false => bits,
        };
        let (region, clock) = self.region(group, access);
        let (now, mut raced) = (Now { touch, width, clock }, None);
        let locations = region.locations(at, half);
        if let Some(shadow) = region.shadow.as_mut().filter(|_| !leaf.is_atomic) {
            for location in locations {
                raced = raced.or(shadow.write(location, &now));
            }
        }
        // Nobody waits for what was there before.
        let is_new = !leaf.is_atomic || region.buffer.get(at, half) != bits;
        region.buffer.set(at, half, bits);
        if !is_storage && number != 0 {
            region.taints.insert(at, number);
        } else if !region.taints.is_empty() {
            region.taints.remove(&at);
        }
        self.progress += u64::from(is_storage && is_new);
        if let Some(past) = raced {
            self.raced(group, access, at, lane, past);
        }
    }

    /// Memory of an access: the buffer that the bound one is a part of.
    fn target(&self, access: &Access) -> Memory {
        match access.memory {
            Memory::Buffer(buffer) => Memory::Buffer(self.targets[buffer as usize].0 as u32),
            other => other,
        }
    }

    /// The memory of an access, and the releases of other workgroups that it follows.
    fn region<'m>(
        &'m mut self,
        group: &'m mut Group,
        access: &Access,
    ) -> (&'m mut Region, &'m [u32]) {
        match access.memory {
            Memory::Buffer(buffer) => {
                let coherent = self.buffers[buffer as usize].coherent;
                let clock = if coherent { &group.coherent } else { &group.clock };
                (&mut self.buffers[self.targets[buffer as usize].0], clock)
            }
            _ => (&mut group.region, &[]),
        }
    }

    /// This access.
    fn touch(&self, group: &Group, access: &Access, lane: usize) -> Touch {
        let is_storage = matches!(access.memory, Memory::Buffer(_));
        Touch {
            group: group.number,
            lane: lane as u32,
            time: if is_storage { group.storage_time } else { group.workgroup_time },
            epoch: group.epoch,
            step: group.steps[lane / self.options.width as usize],
            pc: group.pc as u32,
        }
    }

    fn load(&mut self, group: &mut Group, access: u32, to: Reg) {
        let program = self.program;
        let access = &program.accesses[access as usize];
        let active = group.active;
        self.uses_offset(group, access);
        for (i, leaf) in access.leaves.iter().enumerate() {
            let mut column = Self::take(group, to + i as Reg);
            let mut taint = None;
            if !self.load_input(group, access, leaf, &mut column) {
                let mut numbers = None;
                active.each(|lane| {
                    let (bits, number) = self.read(group, access, leaf, lane);
                    column[lane] = bits;
                    if number != 0 {
                        numbers.get_or_insert_with(|| vec![0; column.len()])[lane] = number;
                    }
                });
                taint = numbers;
            }
            group.set_taint(to + i as Reg, taint);
            Self::put(group, to + i as Reg, column);
        }
    }

    /// Loads words of a buffer that nobody writes: there is nothing to note.
    fn load_input(&self, group: &Group, access: &Access, leaf: &Leaf, to: &mut [u32]) -> bool {
        let Memory::Buffer(buffer) = access.memory else { return false };
        let bound = &self.buffers[buffer as usize];
        if self.targets[buffer as usize].0 != buffer as usize
            || bound.shadow.is_some()
            || bound.buffer.written.is_some()
            || leaf.kind == Kind::F16
        {
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

    /// Notes that an offset decides the place of an access.
    fn uses_offset(&mut self, group: &Group, access: &Access) {
        if let Some(offset) = access.offset {
            self.uses(group, offset);
        }
    }

    fn store(&mut self, group: &mut Group, access: u32, from: &[Reg]) {
        let program = self.program;
        let access = &program.accesses[access as usize];
        self.uses_offset(group, access);
        let order = std::mem::take(&mut group.order);
        for lane in order.iter().map(|lane| *lane as usize) {
            if !group.active.has(lane) {
                continue;
            }
            for (leaf, from) in access.leaves.iter().zip(from) {
                let bits = self.column(group, *from)[lane];
                let number = group.taint(*from).map_or(0, |taint| taint[lane]);
                self.write(group, access, leaf, lane, (bits, number));
            }
        }
        group.order = order;
    }

    fn atomic(
        &mut self,
        group: &mut Group,
        access: u32,
        what: Atomic,
        kind: Kind,
        value: Reg,
        to: Reg,
    ) {
        let program = self.program;
        let access = &program.accesses[access as usize];
        let leaf = Leaf { kind, ..access.leaves[0] };
        self.uses_offset(group, access);
        if !matches!(what, Atomic::Load) {
            self.uses(group, value);
        }
        let order = std::mem::take(&mut group.order);
        let mut results = Self::take(group, to);
        for lane in order.iter().map(|lane| *lane as usize) {
            if !group.active.has(lane) {
                continue;
            }
            let operand = match what {
                Atomic::Load => NOTHING,
                _ => self.column(group, value)[lane],
            };
            let mut old = NOTHING;
            if what != Atomic::Store {
                let number;
                (old, number) = self.read(group, access, &leaf, lane);
                self.confirm(number);
            }
            let new = match what {
                Atomic::Load => None,
                Atomic::Store => Some(operand),
                Atomic::Change(AtomicFunction::Exchange { compare: Some(_) }, expected) => {
                    let same = self.column(group, expected)[lane] == old;
                    group.columns[(to + 1 - FRAME) as usize][lane] = u32::from(same);
                    same.then_some(operand)
                }
                Atomic::Change(function, _) => Some(changed(function, kind, old, operand)),
            };
            self.order(group, access, &leaf, lane, new.is_some(), what);
            if let Some(new) = new {
                self.write(group, access, &leaf, lane, (new, 0));
            }
            results[lane] = old;
        }
        Self::put(group, to, results);
        group.set_taint(to, None);
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
        what: Atomic,
    ) {
        let Memory::Buffer(buffer) = access.memory else { return };
        let offset = access.offset.map_or(0, |offset| self.column(group, offset)[lane]);
        let (buffer, first) = self.targets[buffer as usize];
        let place = (buffer, first.wrapping_add(offset).wrapping_add(access.at + leaf.at));
        group.has_polled |= !writes;
        if !matches!(what, Atomic::Store)
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
            if matches!(what, Atomic::Store) || released.is_empty() {
                *released = known;
            } else {
                join(released, &known);
            }
        }
    }
}

/// An f16 has two bytes in buffers alone.
fn is_half(access: &Access, leaf: &Leaf) -> bool {
    leaf.kind == Kind::F16 && matches!(access.memory, Memory::Buffer(_))
}
