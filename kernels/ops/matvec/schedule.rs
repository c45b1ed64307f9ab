//! Host side of the schedules: grid, constants, tunables, and the problems they cannot run.
//!
//! A variant of a declaration is one of these with a name, `Variant { name: "soa",
//! ..Schedule::SUBGROUP_TILES }`, and what its operation measured or stages in addition.

use std::marker::PhantomData;

use super::geometry::*;
use super::{ALONG_ROWS, MatVec, soa};
use crate::declare::*;

/// Variants of an operation, by their schedule.
pub struct Schedule<P>(PhantomData<P>);

impl<P: MatVec + 'static> Schedule<P> {
    /// An invocation a row.
    pub const NAIVE: Variant<P> =
        Variant::sized("naive", &[Stage::main(&|p, c| groups_for(p.rows(), c))]);

    /// schedule/row_lanes: LANES invocations a dense row.
    pub const ROW_LANES: Variant<P> = Variant {
        stages: &[Stage::main(&|p, c| passes(p) * lanes_grid(p, c))],
        constants: &workgroup_lanes,
        tunables: "WG=64|128|256,LANES=8|16|32|64|128,UNROLL=4|9",
        unsupported: &one_dense_vector,
        ..Variant::PLAIN
    };

    /// schedule/subgroup_share: a subgroup a dense row, its whole share in flight.
    pub const SUBGROUP_SHARE: Variant<P> = Variant {
        stages: &[Stage::main(&rows_grid)],
        constants: &|_, caps| rows_per_group(caps, 1.0),
        tunables: "WG=64|128|256|512,ROWS_PER_WG=2|4|8|16,UNROLL=3|5|9",
        unsupported: &one_dense_vector,
        ..Variant::PLAIN
    };

    /// schedule/split_row: a thread group a dense row.
    pub const SPLIT_ROW: Variant<P> = Variant {
        stages: &[Stage::main(&team_grid)],
        constants: &|p, caps| team(p, caps, p.chunks16(), 1),
        // Rows of 1152, 2048, 6912 and 8192 16-bit weights are 144, 256, 864 and 1024 chunks.
        tunables: "LANES=16|32|48|64|72|96|108|128|144|192|216|256|288|512,TEAMS=1|2|4|8",
        unsupported: &one_dense_vector,
        ..Variant::PLAIN
    };

    /// schedule/split_row over rows/dense8.
    pub const SPLIT_ROW_8: Variant<P> = Variant {
        constants: &|p, caps| team(p, caps, p.chunks8(), 1),
        unsupported: &|p, caps| match p.weight() {
            Format::F32 => Some("WEIGHT=f32 exceeds 16 bits".into()),
            _ => one_dense_vector(p, caps),
        },
        ..Self::SPLIT_ROW
    };

    /// schedule/split_k: a thread group over three dense rows.
    pub const SPLIT_K: Variant<P> = Variant {
        constants: &|p, caps| [team(p, caps, p.chunks16(), 3), vec![("TILE_ROWS", 3.0)]].concat(),
        tunables: "LANES=16|32|48|64|96|128|144|192|256,TEAMS=1|2|4,TILE_ROWS=2|3|4",
        ..Self::SPLIT_ROW
    };

    /// schedule/pipelined: workgroups that stay, each along its rows with x in registers.
    pub const PIPELINED: Variant<P> = Variant {
        stages: &[Stage::main(&pipelined_groups)],
        constants: &sweep,
        as_stage: &pipelined_stage,
        pins_loads: true,
        tunables: "WG=256|512,LANES=32|64|128,TILE_ROWS=4|8|12|16",
        unsupported: &|p, caps| one_dense_vector(p, caps).or_else(|| one_size(caps)),
        ..Variant::PLAIN
    };

    /// schedule/rows8: eight rows a workgroup, up to eight vectors at a time.
    pub const ROWS8: Variant<P> = Variant {
        stages: &[Stage::main(&|p, _| passes(p) * p.rows().div_ceil(8))],
        constants: &|p, caps| {
            // Measured from 1152 to 16384 rows on an H200: workgroups are large where they are few,
            // and where few vectors keep few sums; with three and more 320 invocations are best,
            // perhaps since a compute unit has room for two such. Unpacking wants smaller ones.
            let (rows, n) = (p.rows().max(1), p.n_vectors().div_ceil(passes(p)));
            let few_rows = match p.weight().is_dense() {
                true => (1 << ((1 << 19) / rows).max(1).ilog2()).clamp(96, 256),
                false => 64,
            };
            let few_sums = ((1 << 21) / (n * rows)).min(if n > 2 { 320 } else { 512 }) / 64 * 64;
            let size = caps.subgroup.map_or(32, |(_, max)| max).max(1) as usize;
            let chunks = p.k().div_ceil(8).next_multiple_of(size);
            let wg = chunks.min(few_rows.max(few_sums)).min(caps.invocations as usize);
            vec![("WG", (wg.max(size) / size * size) as f64)]
        },
        tunables: "WG=32|64|128|256|320|512",
        ..Variant::PLAIN
    };

    /// schedule/tree over SoA rows.
    pub const TREE: Variant<P> = Variant {
        stages: &[Stage::main(&lanes_grid)],
        constants: &|p, caps| {
            let lanes = f64::from(soa::lanes(p, 32, 1));
            along_rows::<P>(vec![("LANES", lanes), ("TILE", soa::tile(p, caps, 1) as f64)])
        },
        tunables: "WG=64|128|256,LANES=4|8|16|32",
        unsupported: &one_soa_vector,
        packing: Packing::Soa,
        apart: true,
        ..Variant::PLAIN
    };

    /// schedule/subgroup_tiles: LANES lanes an SoA row.
    pub const SUBGROUP_TILES: Variant<P> = Variant {
        constants: &|p, caps| along_rows::<P>(soa::staged(p, soa::subgroup(caps).min(32), caps)),
        tunables: "WG=64|128|256|512,LANES=4|8|16|32",
        ..Self::TREE
    };

    /// schedule/int8_rows: quantised activations; workgroups iterate over rows, grid-stride.
    pub const INT8_ROWS: Variant<P> = Variant {
        stages: &[Stage::main(&|p, c| soa::dot4_groups(p.rows(), c))],
        constants: &|p, caps| along_rows::<P>(soa::dot4_constants(p, caps)),
        as_stage: &|p, caps, grid| soa::dot4_stage(p, caps, grid, &[1, 2, 4]).map(along_rows::<P>),
        tunables: "WG=128|256|512|1024,LANES=8|16|32,EACH=1|2|4,GROUPS=264|65535,SPLIT=1|4|8",
        unsupported: &|p, caps| one_soa_vector(p, caps).or_else(|| soa::below_a_block(p)),
        digits: 3,
        ..Self::TREE
    };
}

/// Schedules whose rows are gate and up, an output each pair.
impl<P: MatVec + 'static> Schedule<P> {
    /// schedule/gate_up_tree: LANES invocations an output over dense rows.
    pub const GATE_UP_TREE: Variant<P> = Variant {
        stages: &[Stage::main(&outputs_grid)],
        tunables: "WG=64|128|256,LANES=4|8|16|32",
        unsupported: &dense_only,
        ..Variant::PLAIN
    };

    /// schedule/soa_gate_up_tree: the same over SoA rows.
    pub const GATE_UP_TREE_Q: Variant<P> = Variant {
        constants: &|p, caps| [&stacked(p)[..], &[tile(p, caps)]].concat(),
        unsupported: &quantised_only,
        packing: Packing::Soa,
        apart: true,
        ..Self::GATE_UP_TREE
    };

    /// schedule/int8_rows.
    pub const GATE_UP_INT8: Variant<P> = Variant {
        stages: &[Stage::main(&|p, c| soa::dot4_groups(p.rows(), c))],
        // Two outputs to a group of lanes: they may make one word of f16.
        constants: &|p, caps| [&stacked(p)[..], &soa::dot4(p, caps, p.rows(), 4, 264)].concat(),
        as_stage: &|p, caps, grid| {
            let geometry = soa::dot4_stage(p, caps, grid, &[4])?;
            Some([&stacked(p)[..], &geometry].concat())
        },
        tunables: "WG=128|256|512,LANES=4|8|16|32,GROUPS=132|264|1056",
        unsupported: &|p, caps| quantised_only(p, caps).or_else(|| soa::below_a_block(p)),
        packing: Packing::Soa,
        digits: 3,
        ..Variant::PLAIN
    };

    /// schedule/pipelined.
    pub const GATE_UP_PIPELINED: Variant<P> = Variant {
        constants: &|p, caps| [stacked_rows(p), sweep(p, caps)].concat(),
        as_stage: &|p, caps, grid| {
            Some([stacked_rows(p), pipelined_stage(p, caps, grid)?].concat())
        },
        ..Self::PIPELINED
    };
}

/// Passes over the vectors of the schedules that keep a sum of each (schedule/passes).
pub fn passes<P: MatVec>(p: &P) -> usize {
    p.n_vectors().div_ceil(8).max(1)
}

/// Workgroups of WG / LANES outputs.
fn outputs_grid<P: MatVec>(p: &P, c: &Constants) -> usize {
    (p.rows() / 2).div_ceil(((c["WG"] / c["LANES"]) as usize).max(1))
}

/// Gate and up rows as one matrix.
fn stacked_rows<P: MatVec>(p: &P) -> Overrides {
    vec![("ROWS", p.rows() as f64)]
}

/// Gate and up rows as one matrix for rows/soa: each row a stream of blocks of its own.
pub fn stacked<P: MatVec>(p: &P) -> Overrides {
    vec![("ROWS", p.rows() as f64), ALONG_ROWS]
}

/// Chunks of x that lie in workgroup memory at a time (prologue/x_tile), leaving 4 KiB for sums: a
/// power of two, so that any number of lanes is busy.
pub fn tile<P: MatVec>(p: &P, caps: &Capabilities) -> (&'static str, f64) {
    let chunk = soa::chunk(p);
    let fits = (caps.workgroup_memory as usize).saturating_sub(4096) / (16 * (chunk / 4 + 1));
    let most = ((fits / 2 + 1).next_power_of_two()).max(1);
    ("TILE", most.min(p.k().div_ceil(chunk)) as f64)
}

/// Adds the order of blocks where it is no parameter of the operation.
fn along_rows<P: MatVec>(mut constants: Overrides) -> Overrides {
    if !P::HAS_ORDER {
        constants.push(ALONG_ROWS);
    }
    constants
}

fn one_dense_vector<P: MatVec>(p: &P, caps: &Capabilities) -> Option<String> {
    dense_only(p, caps).or_else(|| exceeds("N_VECTORS", p.n_vectors(), 1))
}

fn one_soa_vector<P: MatVec>(p: &P, caps: &Capabilities) -> Option<String> {
    quantised_only(p, caps)
        .or_else(|| whole_chunks(p))
        .or_else(|| exceeds("N_VECTORS", p.n_vectors(), 1))
}

/// Refuses adapters with fewer lanes than schedule/rows8 shares its sums between.
pub fn eight_lanes(caps: &Capabilities) -> Option<String> {
    let size = caps.subgroup.map_or(0, |(min, _)| min);
    (size < 8).then(|| format!("subgroups of {size} lanes, fewer than 8"))
}

/// Refuses orders that the variants over SoA-repacked blocks cannot read.
pub fn whole_chunks<P: MatVec>(p: &P) -> Option<String> {
    let (k, chunk) = (p.k(), soa::chunk(p));
    match p.order() {
        Order::RowWise => None,
        Order::Flat if k.is_multiple_of(chunk) => None,
        Order::Flat => Some(format!("K={k} is no multiple of {chunk}, and ORDER is flat")),
        Order::ColumnWise => Some("ORDER=column_wise is neither row_wise nor flat".into()),
    }
}
