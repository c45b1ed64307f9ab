//! What waits bring into the device's cache: weights of the phases that come next.
//!
//! While workgroups wait for each other, and while attention looks at a few slots, the memory of
//! weights is idle. The invocations of a workgroup that do not poll then load one word of every
//! sector of weights that a later phase reads. Nothing is kept: the phase loads them again, from
//! the cache. Nobody waits for these words: they are looked at a wait later, when they have come.

use std::collections::BTreeSet;
use std::fmt::Write;

use naga::{ScalarKind, TypeInner};

use super::{ARRIVALS, Grid, JoinedPhase, Phase, Place, STRIDE};

/// Bytes that one load brings: what memory is read in on every device that was looked at.
const SECTOR: u32 = 32;
/// Invocations that poll or stand beside those that do, and invocations that load neighbouring
/// sectors.
const TOGETHER: u32 = 32;
/// Bytes that neighbouring invocations bring.
const GRANULE: u32 = TOGETHER * SECTOR;
/// What the name of a function that prefetches begins with.
const NAME: &str = "run_prefetch_";

/// Whether a function of a joined text is one that prefetches.
pub(super) fn is_one(name: Option<&str>) -> bool {
    name.is_some_and(|name| name.starts_with(NAME))
}

/// Weights that can be prefetched.
#[derive(Clone, Copy, Debug)]
struct Weights {
    /// Number of the phase that reads them.
    phase: usize,
    granules: u32,
    /// Bytes of an element: a word or a vector of words.
    stride: u32,
    /// How the first word of an element becomes a `u32`.
    read: fn(&str) -> String,
    /// Rounds that bring all of it; a round is a granule from every 32 invocations of the grid.
    rounds: u32,
    /// Rounds that waits have.
    planned: u32,
}

/// Rounds of the weights that a place reads, from one on.
#[derive(Clone, Copy, Debug)]
struct Share {
    place: usize,
    /// It comes in the next layer.
    is_next: bool,
    first: u32,
    rounds: u32,
}

/// What every wait of a run brings.
#[derive(Debug, Default)]
pub(super) struct Prefetches {
    /// By place, those of its usual way.
    weights: Vec<Option<Weights>>,
    /// By place, whose wait it is.
    waits: Vec<Vec<Share>>,
    layers: usize,
    /// Teams of 32 invocations of a workgroup that do not poll.
    teams: u32,
    groups: u32,
}

impl Prefetches {
    /// Shares the rounds of each wait among the weights that come next, in order: behind the last
    /// place those of the next layer.
    pub(super) fn plan(
        places: &[Place<'_>],
        layers: usize,
        grid: Grid,
        written: &BTreeSet<usize>,
    ) -> Self {
        let teams = (grid.invocations / TOGETHER).saturating_sub(1);
        let per_round = grid.groups * teams;
        let mut plan = Self { teams, groups: grid.groups, layers, ..Self::default() };
        plan.waits = vec![Vec::new(); places.len()];
        if grid.prefetch == 0 || per_round == 0 {
            return plan;
        }
        let mut before = 0;
        for place in places {
            let usual = place.usual();
            let phase = &place.ways[usual].1;
            // A layer without them has nothing at its place among those of the others.
            let all = place.ways.iter().all(|(_, way)| way.buffers.contains_key("weights"));
            let weights = Weights::of(phase, before + usual, per_round, written);
            plan.weights.push(weights.filter(|_| all));
            before += place.ways.len();
        }
        let is_loop = layers > 1;
        for wait in usize::from(!is_loop)..places.len() {
            let mut left = grid.prefetch;
            let next = if is_loop { wait } else { 0 };
            let order =
                (wait..places.len()).map(|i| (i, false)).chain((0..next).map(|i| (i, true)));
            for (place, is_next) in order {
                let Some(weights) = &mut plan.weights[place] else { continue };
                let rounds = left.min(weights.rounds - weights.planned);
                if rounds > 0 {
                    let first = weights.planned;
                    plan.waits[wait].push(Share { place, is_next, first, rounds });
                    weights.planned += rounds;
                    left -= rounds;
                }
            }
        }
        plan
    }

    /// The call ahead of a place's wait.
    pub(super) fn call(&self, place: usize) -> String {
        match self.waits[place].is_empty() {
            true => String::new(),
            false => format!("{NAME}{place}(); "),
        }
    }

    /// What the entry point does first.
    pub(super) fn begin(&self) -> &'static str {
        match self.waits.iter().all(Vec::is_empty) {
            true => "",
            false => "    run_workgroup = group;\n",
        }
    }

    /// What the entry point does last.
    pub(super) fn end(&self) -> &'static str {
        match self.begin() {
            "" => "",
            _ => "    run_seen();\n",
        }
    }

    /// The functions.
    pub(super) fn write(&self, text: &mut String, phases: &[JoinedPhase]) {
        let rounds = |shares: &Vec<Share>| shares.iter().map(|share| share.rounds).sum::<u32>();
        let most = self.waits.iter().map(rounds).max().unwrap_or(0);
        if most == 0 {
            return;
        }
        text.push_str("\nvar<private> run_workgroup: u32;\n");
        for i in 0..most {
            let _ = writeln!(text, "var<private> run_seen_{i}: u32;");
        }
        // A load of which nothing comes is none. This word is between two counters.
        let all: Vec<String> = (0..most).map(|i| format!("run_seen_{i}")).collect();
        let _ = writeln!(
            text,
            "\nfn run_seen() {{\n    \
             if (({}) == 0x9e3779b9u) {{ atomicMax(&{ARRIVALS}[{}u], 1u); }}\n}}",
            all.join(" ^ "),
            STRIDE - 1
        );
        for (wait, shares) in self.waits.iter().enumerate().filter(|(_, s)| !s.is_empty()) {
            let _ = write!(
                text,
                "\nfn {NAME}{wait}() {{\n    if (run_lid >= {TOGETHER}u) {{\n        \
                 run_seen();\n        \
                 let at = run_workgroup * {}u + run_lid / {TOGETHER}u - 1u;\n        \
                 let lane = run_lid % {TOGETHER}u;\n",
                self.teams
            );
            let mut seen = 0;
            for share in shares {
                let Some(weights) = self.weights[share.place] else { continue };
                let phase = &phases[weights.phase];
                let Some((_, name)) = phase.names.iter().find(|(own, _)| own == "weights") else {
                    continue;
                };
                let offset = phase.offsets.get("weights").map(|offset| match share.is_next {
                    // The last layer's again where none comes.
                    true => offset.of(&format!("min(run_layer + 1u, {}u)", self.layers - 1)),
                    false => offset.of("run_layer"),
                });
                let offset = offset.map(|offset| format!("{offset} + ")).unwrap_or_default();
                let Weights { granules, stride, read, .. } = weights;
                let per_round = self.groups * self.teams;
                // Where not all of it is brought, what is brought lies evenly, and so does what
                // every workgroup of the phase finds.
                let brought = (weights.planned * per_round).min(granules);
                let apart = f64::from(granules) / f64::from(brought);
                for round in share.first..share.first + share.rounds {
                    let first = round * per_round;
                    let granule = match brought == granules {
                        true => format!("at + {first}u"),
                        false => format!("u32(f32(at + {first}u) * {apart:?}f)"),
                    };
                    let index = format!(
                        "{offset}min({granule}, {}u) * {}u + lane * {}u",
                        granules - 1,
                        GRANULE / stride,
                        SECTOR / stride
                    );
                    let word = read(&format!("{name}[{index}]"));
                    let _ = writeln!(text, "        run_seen_{seen} = {word};");
                    seen += 1;
                }
            }
            text.push_str("    }\n}\n");
        }
    }
}

impl Weights {
    fn of(
        phase: &Phase<'_>,
        number: usize,
        per_round: u32,
        written: &BTreeSet<usize>,
    ) -> Option<Self> {
        let buffer = phase.buffers.get("weights").filter(|buffer| !written.contains(buffer));
        // Where loads of weights stay ahead of a wait, memory is busy without it.
        buffer.filter(|_| !phase.early)?;
        let granules = u32::try_from(phase.weight_bytes / u64::from(GRANULE)).ok()?;
        let module = &phase.reflection.module;
        let found = module.global_variables.iter().find(|v| v.1.name.as_deref() == Some("weights"));
        let TypeInner::Array { base, stride, .. } = module.types[found?.1.ty].inner else {
            return None;
        };
        let (scalar, is_vector) = match module.types[base].inner {
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
        let fits = granules > 0 && SECTOR.is_multiple_of(stride);
        let rounds = granules.div_ceil(per_round);
        fits.then_some(Self { phase: number, granules, stride, read, rounds, planned: 0 })
    }
}
