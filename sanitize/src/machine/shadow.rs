//! Who touched a memory location last, and what orders two touches.

/// An access to a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Touch {
    /// Number of the workgroup; [`Touch::NONE`] has none.
    pub(crate) group: u32,
    pub(crate) lane: u32,
    /// Barriers for this memory that the workgroup had passed.
    pub(crate) time: u32,
    /// Barriers of any kind: a write after one cannot reach a read before it.
    pub(crate) epoch: u32,
    /// Barriers that the subgroup had passed.
    pub(crate) step: u32,
    /// Its instruction.
    pub(crate) pc: u32,
}

impl Touch {
    pub(crate) const NONE: Self =
        Self { group: u32::MAX, lane: 0, time: 0, epoch: 0, step: 0, pc: 0 };

    fn is_some(&self) -> bool {
        self.group != u32::MAX
    }
}

/// Events that an invocation knows to have happened before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now<'a> {
    pub(crate) touch: Touch,
    /// Invocations of a subgroup.
    pub(crate) width: u32,
    /// By workgroup: its barriers whose earlier accesses were acquired. Empty without atomics.
    pub(crate) clock: &'a [u32],
}

impl Now<'_> {
    /// Returns true if an access happened before this one, or is of the same invocation.
    fn follows(&self, past: &Touch) -> bool {
        let me = &self.touch;
        if past.group != me.group {
            return self.clock.get(past.group as usize).is_some_and(|known| *known > past.time);
        }
        past.lane == me.lane
            || past.time < me.time
            || past.lane / self.width == me.lane / self.width && past.step < me.step
    }

    fn conflict(&self, past: &Touch) -> Option<Touch> {
        (past.is_some() && !self.follows(past)).then_some(*past)
    }

    /// The earlier read that this write overtakes, if any.
    fn overtakes(&self, past: &Touch) -> Option<Touch> {
        let me = &self.touch;
        self.conflict(past).filter(|past| past.group != me.group || past.epoch == me.epoch)
    }
}

#[derive(Clone, Copy, Debug)]
struct Location {
    write: Touch,
    /// Reads since then. A later write that collides with any collides with one of these: they are
    /// of two workgroups, or of two invocations since the last barrier.
    reads: [Touch; 2],
}

/// Bytes of the notes on a location.
pub(super) const LOCATION_BYTES: usize = size_of::<Location>();

const FRESH: Location = Location { write: Touch::NONE, reads: [Touch::NONE; 2] };

impl Location {
    fn read(&mut self, now: &Now<'_>) {
        let (me, [first, second]) = (now.touch, &mut self.reads);
        let subgroup = |touch: &Touch| touch.lane / now.width;
        if !first.is_some() {
            *first = me;
        } else if second.is_some() && second.group != first.group {
            // Enough already.
        } else if me.group != first.group {
            *second = me;
        } else if first.epoch < me.epoch {
            [*first, *second] = [me, Touch::NONE];
        } else if first.lane == me.lane {
            *first = me;
        } else if !second.is_some()
            || second.lane == me.lane
            || subgroup(first) == subgroup(second) && subgroup(&me) != subgroup(first)
        {
            *second = me;
        }
    }
}

/// Accesses to the locations of one memory.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    locations: Vec<Location>,
    /// Reads by location: where atomics may order workgroups, no two stand for all.
    reads: Vec<Vec<Touch>>,
}

impl Shadow {
    /// `is_synchronised`: atomics may order workgroups.
    pub(crate) fn new(locations: usize, is_synchronised: bool) -> Self {
        let reads = vec![Vec::new(); if is_synchronised { locations } else { 0 }];
        Self { locations: vec![FRESH; locations], reads }
    }

    /// Notes a read and returns a write that nothing orders with it.
    pub(crate) fn read(&mut self, location: u32, now: &Now<'_>) -> Option<Touch> {
        let known = self.locations.get_mut(location as usize)?;
        match self.reads.get_mut(location as usize) {
            None => known.read(now),
            Some(reads) => {
                let me = now.touch;
                reads.retain(|past| past.group != me.group || past.epoch >= me.epoch);
                let mut own = reads.iter().filter(|past| past.group == me.group);
                if own.clone().count() < 2 && own.all(|past| past.lane != me.lane) {
                    reads.push(me);
                }
            }
        }
        now.conflict(&known.write)
    }

    /// Notes a write and returns an access that nothing orders with it, and true if it is a write.
    pub(crate) fn write(&mut self, location: u32, now: &Now<'_>) -> Option<(Touch, bool)> {
        let known = self.locations.get_mut(location as usize)?;
        let mut found = now.conflict(&known.write).map(|past| (past, true));
        let mut others = self.reads.get_mut(location as usize);
        if found.is_none() {
            let others = others.iter().flat_map(|others| others.iter());
            let mut reads = known.reads.iter().chain(others);
            found = reads.find_map(|past| now.overtakes(past)).map(|past| (past, false));
        }
        if let Some(others) = &mut others {
            others.clear();
        }
        *known = Location { write: now.touch, reads: [Touch::NONE; 2] };
        found
    }
}
