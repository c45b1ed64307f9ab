//! Prefetch into the device's cache at grid barriers: weights and norms of the next stages.
//!
//! While workgroups wait for each other, and while attention looks at a few slots, the memory of
//! weights is idle. The invocations of a workgroup that do not poll then load one word of every
//! sector of weights that a later stage reads. Nothing is kept: the stage loads them again, from
//! the cache. No invocation waits for these words: they are read one barrier later, when they have
//! come.

use std::collections::BTreeSet;
use std::fmt::Write;

use naga::{ScalarKind, TypeInner};

use super::{ARRIVALS, Code, FusedStage, Grid, JoinedStage, STRIDE, Slot};

/// Bytes that one load brings: the unit of memory reads on every measured device.
const SECTOR: u32 = 32;
/// Invocations of the team that polls, and invocations that load neighbouring sectors.
const TOGETHER: u32 = 32;
/// Bytes that neighbouring invocations bring.
const GRANULE: u32 = TOGETHER * SECTOR;
/// Sectors of a tensor that counts as small.
const MOST_SECTORS: u32 = 2048;
/// Prefix of the names of functions that prefetch.
const NAME: &str = "grid_prefetch_";

/// Returns true for a function of a joined text that prefetches.
pub(super) fn is_one(name: Option<&str>) -> bool {
    name.is_some_and(|name| name.starts_with(NAME))
}

/// Load of a word of a buffer.
#[derive(Clone, Copy, Debug)]
struct Element {
    /// Bytes of an element: a word or a vector of words.
    stride: u32,
    /// Conversion of the first word of an element to a `u32`.
    read: fn(&str) -> String,
}

/// Weights that can be prefetched.
#[derive(Clone, Copy, Debug)]
struct Weights {
    /// Number of the stage that reads them.
    stage: usize,
    granules: u32,
    element: Element,
    /// Rounds that bring all of it; a round is a granule from every 32 invocations of the grid.
    rounds: u32,
    /// Rounds that waits have.
    planned: u32,
}

/// Rounds of the weights that a place reads, from one on.
#[derive(Clone, Copy, Debug)]
struct Share {
    slot: usize,
    /// True if it belongs to the next layer.
    is_next: bool,
    first: u32,
    rounds: u32,
}

/// A small tensor, such as the weights of a norm, of which a wait brings all.
#[derive(Clone, Debug)]
struct Table {
    /// Number of the stage that reads it, and its name there.
    stage: usize,
    name: String,
    /// True if it belongs to the next layer.
    is_next: bool,
    sectors: u32,
    element: Element,
}

/// Prefetches of every wait of a run.
#[derive(Debug, Default)]
pub(super) struct Prefetches {
    /// Weights of each place, from its usual stage.
    weights: Vec<Option<Weights>>,
    /// Shares of each place's barrier.
    waits: Vec<Vec<Share>>,
    tables: Vec<Vec<Table>>,
    layers: usize,
    /// Teams of 32 invocations of a workgroup that do not poll.
    teams: u32,
    groups: u32,
}

impl Prefetches {
    /// Shares the rounds of each barrier among the next weights, in order: after the last place
    /// those of the next layer.
    pub(super) fn plan(
        slots: &[Slot<'_>],
        layers: usize,
        grid: Grid,
        written: &BTreeSet<usize>,
    ) -> Self {
        let teams = (grid.invocations / TOGETHER).saturating_sub(1);
        let per_round = grid.groups * teams;
        let mut plan = Self { teams, groups: grid.groups, layers, ..Self::default() };
        plan.waits = vec![Vec::new(); slots.len()];
        plan.tables = vec![Vec::new(); slots.len()];
        if grid.prefetch == 0 || per_round == 0 {
            return plan;
        }
        let mut before = 0;
        for slot in slots {
            let usual = slot.usual();
            let stage = &slot.alternatives[usual].1;
            // A layer without them has nothing at its place among those of the others.
            let all = slot
                .alternatives
                .iter()
                .all(|(_, alternative)| alternative.code.buffers.contains_key("weights"));
            let weights = Weights::of(stage, before + usual, per_round, written);
            plan.weights.push(weights.filter(|_| all));
            // On their way a stage ahead of the one that needs them.
            let at = plan.weights.len() - 1;
            if layers > 1 {
                let wait = (at + slots.len() - 1) % slots.len();
                let tables = Table::all(slot, layers, before + usual, at == 0, written);
                plan.tables[wait].extend(tables);
            }
            before += slot.alternatives.len();
        }
        let is_loop = layers > 1;
        for wait in usize::from(!is_loop)..slots.len() {
            let mut left = grid.prefetch;
            let next = if is_loop { wait } else { 0 };
            let order = (wait..slots.len()).map(|i| (i, false)).chain((0..next).map(|i| (i, true)));
            for (slot, is_next) in order {
                let Some(weights) = &mut plan.weights[slot] else { continue };
                let rounds = left.min(weights.rounds - weights.planned);
                if rounds > 0 {
                    let first = weights.planned;
                    plan.waits[wait].push(Share { slot, is_next, first, rounds });
                    weights.planned += rounds;
                    left -= rounds;
                }
            }
        }
        plan
    }

    /// The call ahead of a slot's wait.
    pub(super) fn call(&self, slot: usize) -> String {
        match self.is_empty(slot) {
            true => String::new(),
            false => format!("{NAME}{slot}(); "),
        }
    }

    /// Returns true if a place's wait brings nothing.
    fn is_empty(&self, slot: usize) -> bool {
        self.waits[slot].is_empty() && self.tables[slot].is_empty()
    }

    /// Code at the beginning and at the end of the entry point.
    pub(super) fn around(&self) -> (&'static str, &'static str) {
        match (0..self.waits.len()).all(|slot| self.is_empty(slot)) {
            true => ("", ""),
            false => ("    grid_workgroup = group;\n", "    grid_seen();\n"),
        }
    }

    /// The functions.
    pub(super) fn write(&self, text: &mut String, stages: &[JoinedStage]) {
        let words = |slot: usize| {
            let rounds: u32 = self.waits[slot].iter().map(|share| share.rounds).sum();
            rounds + u32::from(!self.tables[slot].is_empty())
        };
        let most = (0..self.waits.len()).map(words).max().unwrap_or(0);
        if most == 0 {
            return;
        }
        text.push_str("\nvar<private> grid_workgroup: u32;\n");
        for i in 0..most {
            let _ = writeln!(text, "var<private> grid_seen_{i}: u32 = 0u;");
        }
        // A load of which nothing comes is none. This word is between two counters.
        let all: Vec<String> = (0..most).map(|i| format!("grid_seen_{i}")).collect();
        let _ = writeln!(
            text,
            "\nfn grid_seen() {{\n    \
             if (({}) == 0x9e3779b9u) {{ atomicMax(&{ARRIVALS}[{}u], 1u); }}\n}}",
            all.join(" ^ "),
            STRIDE - 1
        );
        for (wait, shares) in self.waits.iter().enumerate() {
            if self.is_empty(wait) {
                continue;
            }
            let _ = write!(
                text,
                "\nfn {NAME}{wait}() {{\n    if (grid_lid >= {TOGETHER}u) {{\n        \
                 grid_seen();\n        \
                 let at = grid_workgroup * {}u + grid_lid / {TOGETHER}u - 1u;\n        \
                 let lane = grid_lid % {TOGETHER}u;\n",
                self.teams
            );
            let mut seen = 0;
            for share in shares {
                let Some(weights) = self.weights[share.slot] else { continue };
                let Weights { stage, granules, element, .. } = weights;
                let per_round = self.groups * self.teams;
                // Where not all of it is brought, what is brought lies evenly, and so does what
                // every workgroup of the stage finds.
                let brought = (weights.planned * per_round).min(granules);
                let apart = f64::from(granules) / f64::from(brought);
                for round in share.first..share.first + share.rounds {
                    let first = round * per_round;
                    let granule = match brought == granules {
                        true => format!("at + {first}u"),
                        false => format!("u32(f32(at + {first}u) * {apart:?}f)"),
                    };
                    let index = format!(
                        "min({granule}, {}u) * {}u + lane * {}u",
                        granules - 1,
                        GRANULE / element.stride,
                        SECTOR / element.stride
                    );
                    let of = (&stages[stage], "weights", share.is_next);
                    let Some(word) = self.word(of, element, &index) else { continue };
                    let _ = writeln!(text, "        grid_seen_{seen} = {word};");
                    seen += 1;
                }
            }
            self.write_tables(text, wait, seen, stages);
            text.push_str("    }\n}\n");
        }
    }

    /// Load of the first word of an element: a stage, its variable, and whether it is the next
    /// layer's.
    fn word(
        &self,
        (stage, name, is_next): (&JoinedStage, &str, bool),
        element: Element,
        index: &str,
    ) -> Option<String> {
        let (_, variable) = stage.names.iter().find(|(own, _)| own == name)?;
        let offset = stage.offsets.get(name).map(|offset| match is_next {
            // The last layer's again where none comes.
            true => offset.of(&format!("min(grid_layer + 1u, {}u)", self.layers - 1)),
            false => offset.of("grid_layer"),
        });
        let offset = offset.map(|offset| format!("{offset} + ")).unwrap_or_default();
        Some((element.read)(&format!("{variable}[{offset}{index}]")))
    }

    /// A sector each of the small tensors, for as many invocations as they have.
    fn write_tables(&self, text: &mut String, wait: usize, seen: usize, stages: &[JoinedStage]) {
        let tables = &self.tables[wait];
        if tables.is_empty() {
            return;
        }
        let _ = writeln!(
            text,
            "        let sector = grid_workgroup * {}u + grid_lid - {TOGETHER}u;",
            self.teams * TOGETHER
        );
        let (mut first, mut separator) = (0, "        ");
        for table in tables {
            let of = (&stages[table.stage], table.name.as_str(), table.is_next);
            let index = format!("(sector - {first}u) * {}u", SECTOR / table.element.stride);
            let Some(word) = self.word(of, table.element, &index) else { continue };
            first += table.sectors;
            let _ =
                write!(text, "{separator}if (sector < {first}u) {{ grid_seen_{seen} = {word}; }}");
            separator = "\n        else ";
        }
        text.push('\n');
    }
}

impl Table {
    /// Tables of a slot's usual stage that each layer has of its own: from the first layer on, or
    /// from the next one on.
    fn all(
        slot: &Slot<'_>,
        layers: usize,
        number: usize,
        is_next: bool,
        written: &BTreeSet<usize>,
    ) -> Vec<Self> {
        let stage = &slot.alternatives[slot.usual()].1;
        let Code { reflection, function, buffers, stacked, .. } = &stage.code;
        let Some(entry) = reflection.entry(function) else { return Vec::new() };
        let touched = entry.buffers.iter().map(|i| reflection.buffers[*i].name.as_str());
        let touched: BTreeSet<&str> = touched.filter(|name| *name != "weights").collect();
        let of_each = |name: &str| {
            let has = |layer: usize| {
                let mut alternatives =
                    slot.alternatives.iter().filter(|(own, _)| own.contains(&layer));
                alternatives
                    .all(|(_, alternative)| alternative.code.buffers.get(name) == buffers.get(name))
            };
            stacked.contains_key(name) && (usize::from(is_next)..layers).all(has)
        };
        let given = stage.given.iter().filter(|(name, _)| touched.contains(**name));
        let tables = given.filter_map(|(name, bytes)| {
            let sectors = u32::try_from(bytes / u64::from(SECTOR)).ok()?;
            let element = Element::of(stage, name)?;
            let is_small = (1..=MOST_SECTORS).contains(&sectors);
            let fits = is_small && of_each(name) && !written.contains(buffers.get(name)?);
            let name = (*name).to_owned();
            fits.then_some(Self { stage: number, name, is_next, sectors, element })
        });
        tables.collect()
    }
}

impl Element {
    /// Describes a variable whose elements are words or vectors of words, a whole number per
    /// sector.
    fn of(stage: &FusedStage<'_>, name: &str) -> Option<Self> {
        let (element, stride) = stage.code.reflection.element(name)?;
        let (scalar, is_vector) = match *element {
            TypeInner::Scalar(scalar) => (scalar, false),
            TypeInner::Vector { scalar, .. } => (scalar, true),
            _ => return None,
        };
        let read: fn(&str) -> String = match (scalar.kind, scalar.width, is_vector) {
            (ScalarKind::Uint, 4, false) => |element| element.to_owned(),
            (ScalarKind::Uint, 4, true) => |element| format!("{element}.x"),
            (ScalarKind::Float, 4, false) => |element| format!("bitcast<u32>({element})"),
            (ScalarKind::Float, 4, true) => |element| format!("bitcast<u32>({element}.x)"),
            _ => return None,
        };
        SECTOR.is_multiple_of(stride).then_some(Self { stride, read })
    }
}

impl Weights {
    fn of(
        stage: &FusedStage<'_>,
        number: usize,
        per_round: u32,
        written: &BTreeSet<usize>,
    ) -> Option<Self> {
        let buffer = stage.code.buffers.get("weights").filter(|buffer| !written.contains(buffer));
        // Where loads of weights stay ahead of a wait, memory is busy without it.
        buffer.filter(|_| !stage.pins_loads)?;
        let bytes = stage.given.get("weights").copied().unwrap_or(0);
        let granules = u32::try_from(bytes / u64::from(GRANULE)).ok().filter(|n| *n > 0)?;
        let element = Element::of(stage, "weights")?;
        let rounds = granules.div_ceil(per_round);
        Some(Self { stage: number, granules, element, rounds, planned: 0 })
    }
}
