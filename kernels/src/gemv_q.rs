//! Quantised matrix times vector: ggml blocks are decoded on the way.

use crate::descriptor::*;
use crate::layout::{Format, Order, Packing, act_bytes};
use crate::shape::{Param, Shape};
use crate::shared::*;

/// Weights in sixteen bytes of codes; see `planes.wgsl`.
fn chunk(s: &Shape) -> usize {
    if Format::of(s) == Format::Q8_0 { 16 } else { 32 }
}

/// Chunks of a row.
fn chunks(s: &Shape) -> usize {
    s.dim("K").div_ceil(chunk(s))
}

/// Lanes for the rows that a subgroup variant takes `each` at a time. As many, up to a subgroup, as
/// are needed to fill a large GPU with subgroups; beyond that those of which at least nine tenths
/// have a chunk in every round: 1152 weights are 36 chunks, which keep 32 lanes half idle and 8
/// lanes busy.
pub(crate) fn lanes(s: &Shape, most: u32, each: usize) -> u32 {
    lanes_of(s, s.dim("ROWS"), most, each)
}

/// The same for `rows` rows of the length of the shape's.
pub(crate) fn lanes_of(s: &Shape, rows: usize, most: u32, each: usize) -> u32 {
    const SUBGROUPS: usize = 1536;
    let chunks = chunks(s) as u32;
    let fills = |lanes: u32| rows * lanes as usize >= each * SUBGROUPS * most as usize;
    let busy = |lanes: u32| f64::from(chunks) / f64::from(chunks.next_multiple_of(lanes));
    let mut lanes = most.max(4);
    while lanes > 4 && fills(lanes / 2) && busy(lanes) < 0.9 {
        lanes /= 2;
    }
    lanes
}

pub(crate) fn subgroup(caps: &Capabilities) -> u32 {
    caps.subgroup.map_or(32, |(_, max)| max.max(4))
}

/// Chunks of `columns` vectors that are held in workgroup memory at a time (see `x_tile.wgsl`): all
/// of them if possible, else what keeps any number of lanes busy.
pub(crate) fn tile(s: &Shape, caps: &Capabilities, columns: usize) -> usize {
    let one = 16 * columns * (chunk(s) / 4 + 1);
    // What else the variants keep there.
    let fits = (caps.workgroup_memory as usize).saturating_sub(2048) / one;
    let whole = if fits < 64 { (fits / 2 + 1).next_power_of_two() } else { fits / 64 * 64 };
    whole.min(chunks(s))
}

fn geometry(lanes: u32, caps: &Capabilities) -> Vec<(&'static str, f64)> {
    vec![("LANES", f64::from(lanes)), ("SG", f64::from(caps.fixed_subgroup()))]
}

/// Constants of planes_tree.wgsl.
pub(crate) fn tree_constants(s: &Shape, caps: &Capabilities) -> Vec<(&'static str, f64)> {
    vec![("LANES", f64::from(lanes(s, 32, 1))), ("TILE", tile(s, caps, 1) as f64)]
}

/// As [`geometry`] for a variant that holds activations in workgroup memory.
pub(crate) fn staged(s: &Shape, lanes: u32, caps: &Capabilities) -> Vec<(&'static str, f64)> {
    let mut constants = geometry(lanes, caps);
    constants.push(("TILE", tile(s, caps, 1) as f64));
    constants
}

/// Workgroups of `each` rows to every group of LANES lanes.
pub(crate) fn groups(s: &Shape, c: &Constants, each: usize) -> usize {
    s.dim("ROWS").div_ceil(each * (c["WG"] as usize / c["LANES"] as usize).max(1))
}

/// What the variants over planes ask of a shape.
fn whole_chunks(s: &Shape) -> Option<String> {
    let (k, chunk) = (s.dim("K"), chunk(s));
    match Order::of(s) {
        Order::RowWise => None,
        Order::Flat if k.is_multiple_of(chunk) => None,
        Order::Flat => Some(format!("flat rows of {k} begin within {chunk} weights of one scale")),
        Order::ColumnWise => Some("its rows are no runs of weights".into()),
    }
}

/// Columns of x must begin on whole vectors.
fn columns_aligned(s: &Shape, _: &Capabilities) -> Option<String> {
    let (cols, k) = (s.dim("COLS"), s.dim("K"));
    let ragged = || (cols > 1 && k % 8 > 0).then(|| format!("columns of {k} are not aligned"));
    whole_chunks(s).or_else(ragged)
}

/// Workgroups that share the columns of the same rows in `column_wise`: enough to fill a large
/// GPU, each with some columns left.
fn splits(s: &Shape) -> usize {
    let (tiles, k) = (s.dim("ROWS").div_ceil(256), s.dim("K"));
    (512 / tiles).min(k / 64).clamp(1, 16)
}

/// What rounding activations to 8 bits allows, for normally distributed ones and K >= 32.
fn rounded(s: &Shape) -> Tolerance {
    Tolerance {
        k: 0.02 / f64::from(f32::EPSILON),
        rounding: 0.0,
        // The fewer rows, the more the share of error in them varies.
        nmse: match s.dim("ROWS") {
            0..8 => 5e-3,
            8..64 => 5e-4,
            _ => 1e-4,
        },
        reason: "activations are rounded by up to max|x of 32| / 254, in the mean square by that \
                 / sqrt 3: with a maximum of some 2.2 deviations an NMSE of 2.5e-5, and over 32 \
                 weights a deviation of 0.14 % of sum|w x|, less over more",
    }
}

/// What rounding activations to 16 bits adds to the kernel's own bounds, for normally distributed
/// ones and K >= 32.
fn rounded_finely(s: &Shape) -> Tolerance {
    let k = s.float("K");
    Tolerance {
        k: 64.0 + 4.0 * k.sqrt() + 2048.0 / k.sqrt(),
        rounding: 0.0,
        // The fewer rows, the more the share of error in them varies; fewer than 8 may all but
        // cancel, one in 5000 beyond even this.
        nmse: match s.dim("ROWS") {
            0..8 => 5e-3,
            8..64 => 2e-8,
            _ => 4e-9,
        },
        reason: "activations are rounded by up to max|x of 32| / 65278, in the mean square by that \
                 / sqrt 3: with a maximum of some 2.2 deviations an NMSE of 4e-10, and over K \
                 weights a deviation of 256 eps / sqrt K of sum|w x|, of which the bound allows \
                 eight; beside it the random walk of K / 32 rounded additions, with scale and \
                 minimum apart",
    }
}

fn one_column(s: &Shape, _: &Capabilities) -> Option<String> {
    let columns = || (s.dim("COLS") > 1).then(|| "one column of activations only".to_owned());
    whole_chunks(s).or_else(columns)
}

/// What the variants over `planes_dot4.wgsl` ask of a shape. Their workgroup memory holds all of x.
fn dot4_refuses(s: &Shape, caps: &Capabilities) -> Option<String> {
    one_column(s, caps).or_else(|| below_a_block(s))
}

/// Why activations are not rounded.
pub(crate) fn below_a_block(s: &Shape) -> Option<String> {
    (s.dim("K") < 32).then(|| "K is below a block of 32".to_owned())
}

/// Geometry of planes_dot4.wgsl over `rows` rows, `each` to a group of lanes, in at most `groups`
/// workgroups.
pub(crate) fn dot4(
    s: &Shape,
    caps: &Capabilities,
    rows: usize,
    each: usize,
    groups: usize,
) -> Vec<(&'static str, f64)> {
    let mut constants = geometry(lanes_of(s, rows, subgroup(caps), each), caps);
    constants.extend([("EACH", each as f64), ("GROUPS", groups as f64), ("SPLIT", 1.0)]);
    constants
}

/// Measured: one row where rows are few and short, so that subgroups are many; two where a row takes a
/// subgroup several rounds; four where there are rows for all, which also take turns, so that not
/// every few of them round x anew. Few long rows are shared by four subgroups.
pub(crate) fn dot4_constants(s: &Shape, caps: &Capabilities) -> Vec<(&'static str, f64)> {
    let (each, groups, split, wg) = match (s.dim("ROWS"), s.dim("K")) {
        (0..1536, 4096..) => (2, 1056, 4, 1024),
        (0..4096, 4096..) => (4, 1056, 4, 512),
        (0..3072, _) => (1, 1056, 1, 256),
        (0..16384, _) => (2, 1056, 1, 256),
        _ => (4, 264, 1, 256),
    };
    let mut constants = dot4(s, caps, s.dim("ROWS"), each, groups);
    constants.retain(|(name, _)| *name != "SPLIT");
    // Beside three bytes an activation a workgroup holds a float a subgroup of four and at most one
    // a part of a row: what does not fit takes fewer invocations.
    let mut wg = caps.invocations.min(wg);
    let bytes = |wg: u32| 112 * s.dim("K").div_ceil(32) + (1 + each) * wg as usize;
    while wg > 64 && bytes(wg) > caps.workgroup_memory as usize {
        wg /= 2;
    }
    constants.extend([("SPLIT", f64::from(split)), ("WG", f64::from(wg))]);
    constants
}

/// Workgroups of planes_dot4.wgsl over `rows` rows.
pub(crate) fn dot4_groups(rows: usize, c: &Constants) -> usize {
    let teams = (c["WG"] / c["LANES"]) as usize;
    let turn = c["EACH"] as usize * (teams / (c["SPLIT"] as usize).min(teams).max(1));
    let sets = rows.div_ceil(turn.max(1));
    sets.div_ceil(sets.div_ceil(c["GROUPS"] as usize))
}

/// Rounded columns of three bytes that planes_dp4a24_cols holds at a time: as many as have room,
/// dealt out evenly over the passes that takes. None where there is no room for one.
fn held_columns(s: &Shape, caps: &Capabilities) -> Option<usize> {
    // A float a subgroup of four lanes, WG up to 512.
    const OTHERS: usize = 512;
    let one = 112 * s.dim("K").div_ceil(32);
    let room = (caps.workgroup_memory as usize).saturating_sub(OTHERS) / one;
    let cols = s.dim("COLS");
    (room > 0).then(|| cols.div_ceil(cols.div_ceil(room)))
}

/// Lanes of planes_dp4a24_cols: every column's sums cross all of them at the end of a row, so as few, from
/// eight on, as leave the subgroups that a large GPU wants. Measured from 2 to 8 columns.
fn column_lanes(s: &Shape, caps: &Capabilities) -> u32 {
    let most = subgroup(caps);
    let wanted = if s.dim("COLS") > 4 { 500 } else { 800 };
    let enough = |lanes: &u32| s.dim("ROWS") / 4 * *lanes as usize >= wanted * most as usize;
    (3..7).map(|log| 1 << log).filter(|lanes| *lanes < most).find(enough).unwrap_or(most)
}

/// Workgroups of planes_dp4a24_cols: sets of rows times passes over the columns.
fn column_groups(s: &Shape, c: &Constants) -> usize {
    let sets = s.dim("ROWS").div_ceil(4 * ((c["WG"] / c["LANES"]) as usize).max(1));
    let passes = s.dim("COLS").div_ceil(c["X_COLUMNS"] as usize);
    sets.div_ceil(sets.div_ceil((c["GROUPS"] as usize / passes).max(1))) * passes
}

const DOT4_STAGES: &[Stage] =
    &[Stage { entry: "main", grid: |s, c| dot4_groups(s.dim("ROWS"), c) }];

fn shape(rows: usize, k: usize, format: Format) -> Shape {
    Shape::new(&[
        ("ROWS", rows as f64),
        ("K", k as f64),
        ("WEIGHT", format.code()),
        ("ACTS", 0.0),
        ("FIRST", 0.0),
        ("COLS", 1.0),
        ("ORDER", Order::RowWise.code()),
        ("BETA", 0.0),
    ])
}

/// What the variants whose workgroups take turns of rows may try.
pub(crate) const TURNS: &[(&str, &[f64])] = &[
    ("WG", &[128.0, 256.0, 512.0, 1024.0]),
    ("LANES", &[8.0, 16.0, 32.0]),
    ("EACH", &[1.0, 2.0, 4.0]),
    ("GROUPS", &[264.0, 65535.0]),
    ("SPLIT", &[1.0, 4.0, 8.0]),
];

pub(crate) const LANES: &[f64] = &[4.0, 8.0, 16.0, 32.0];

pub(crate) static KERNEL: Kernel = Kernel {
    name: "gemv_q",
    summary: "quantised matrix (ROWS, K) times vector (K), f32 accumulation",
    params: &[
        ROWS,
        columns(1000),
        weight(Format::QUANTISED),
        ACTS_IN,
        FIRST,
        Param::dim(
            "COLS",
            "vectors multiplied at once: x is (COLS, K), y is (COLS, FIRST + ROWS)",
            1,
            8,
        ),
        Param::mostly(
            "ORDER",
            "how the values of the matrix run through its blocks; model files are row_wise",
            Order::NAMES,
        ),
        BETA,
    ],
    bindings: &[
        Binding::input("weights", Elem::Weights, |s| s.dim("ROWS") * s.dim("K")),
        Binding::input("x", Elem::Act, |s| s.dim("COLS") * s.dim("K")),
        Binding::in_out("y", Elem::F32, |s| s.dim("COLS") * (s.dim("FIRST") + s.dim("ROWS"))),
        Binding::scratch("parts", Elem::F32, |s| s.dim("COLS") * splits(s) * s.dim("ROWS")),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| s.dim("ROWS").div_ceil(c["WG"] as usize),
            }],
            tunables: WORKGROUPS,
            ..PLAIN
        },
        Variant {
            name: "blocks",
            stages: &[Stage { entry: "main", grid: |s, c| groups(s, c, 1) }],
            constants: |_, caps| geometry(subgroup(caps).min(32), caps),
            tunables: &[("WG", &[64.0, 128.0, 256.0]), ("LANES", LANES)],
            refuses: |s, _| match (Order::of(s), s.dim("COLS")) {
                (Order::RowWise, 1) => None,
                (Order::RowWise, _) => Some("one column of activations only".into()),
                _ => Some("blocks run along the rows only".into()),
            },
            ..PLAIN
        },
        Variant {
            name: "workgroup",
            stages: &[Stage { entry: "main", grid: |s, c| groups(s, c, 1) }],
            constants: tree_constants,
            tunables: &[("WG", &[64.0, 128.0, 256.0]), ("LANES", LANES)],
            refuses: columns_aligned,
            packing: Packing::Planes,
            ..PLAIN
        },
        Variant {
            name: "planes",
            stages: &[Stage { entry: "main", grid: |s, c| groups(s, c, 1) }],
            constants: |s, caps| staged(s, subgroup(caps).min(32), caps),
            tunables: &[("WG", &[64.0, 128.0, 256.0, 512.0]), ("LANES", LANES)],
            refuses: one_column,
            packing: Packing::Planes,
            ..PLAIN
        },
        Variant {
            name: "planes_multicol",
            stages: &[Stage { entry: "main", grid: |s, c| groups(s, c, c["EACH"] as usize) }],
            constants: |s, caps| staged(s, lanes(s, subgroup(caps), 4), caps),
            tunables: &[
                ("WG", &[64.0, 128.0, 256.0, 512.0]),
                ("LANES", LANES),
                ("EACH", &[2.0, 4.0]),
            ],
            refuses: one_column,
            packing: Packing::Planes,
            ..PLAIN
        },
        Variant {
            name: "planes_batch",
            stages: &[Stage { entry: "main", grid: |s, c| groups(s, c, 4) }],
            constants: |s, caps| {
                let tile = tile(s, caps, s.dim("COLS"));
                let lanes = lanes(s, subgroup(caps), 4).min(1 << tile.ilog2()).max(4);
                let mut constants = geometry(lanes, caps);
                constants.push(("TILE", tile as f64));
                constants.push(("X_COLUMNS", s.float("COLS")));
                constants
            },
            tunables: &[("WG", &[64.0, 128.0, 256.0]), ("LANES", LANES)],
            refuses: |s, caps| {
                let many = || (s.dim("COLS") > 8).then(|| "at most 8 columns".to_owned());
                columns_aligned(s, caps).or_else(many)
            },
            packing: Packing::Planes,
            ..PLAIN
        },
        Variant {
            name: "planes_dp4a24_cols",
            stages: &[Stage { entry: "main", grid: column_groups }],
            constants: |s, caps| {
                let held = held_columns(s, caps).unwrap_or(1);
                let mut constants = geometry(column_lanes(s, caps), caps);
                constants.extend([("X_COLUMNS", held as f64), ("GROUPS", 264.0)]);
                constants
            },
            tunables: &[
                ("WG", &[128.0, 256.0, 512.0]),
                ("LANES", &[8.0, 16.0, 32.0]),
                ("GROUPS", &[132.0, 264.0, 528.0, 65535.0]),
            ],
            refuses: |s, caps| {
                let many = || (s.dim("COLS") > 8).then(|| "at most 8 columns".to_owned());
                let full = || {
                    let room = held_columns(s, caps);
                    room.is_none().then(|| "too little memory for its rounded columns".to_owned())
                };
                columns_aligned(s, caps).or_else(many).or_else(|| below_a_block(s)).or_else(full)
            },
            packing: Packing::Planes,
            ..PLAIN
        },
        Variant {
            name: "planes_dp4a24",
            stages: DOT4_STAGES,
            constants: dot4_constants,
            tunables: TURNS,
            refuses: dot4_refuses,
            packing: Packing::Planes,
            ..PLAIN
        },
        Variant {
            name: "planes_dp4a16",
            stages: DOT4_STAGES,
            constants: dot4_constants,
            tunables: TURNS,
            refuses: dot4_refuses,
            packing: Packing::Planes,
            tolerance: Some(rounded_finely),
        },
        Variant {
            name: "planes_dp4a",
            stages: DOT4_STAGES,
            constants: dot4_constants,
            tunables: &[("WG", &[64.0, 128.0, 256.0, 512.0]), ("LANES", LANES)],
            refuses: |s, caps| {
                // One such row in twenty cancels to where nothing can be held against it.
                let few = || (s.dim("ROWS") < 4).then(|| "too coarse for fewer than 4 rows".into());
                dot4_refuses(s, caps).or_else(few)
            },
            packing: Packing::Planes,
            tolerance: Some(rounded),
        },
        Variant {
            name: "column_wise",
            stages: &[
                Stage {
                    entry: "main",
                    grid: |s, _| s.dim("ROWS").div_ceil(256) * splits(s) * s.dim("COLS"),
                },
                Stage { entry: "sum", grid: |s, _| (s.dim("ROWS") * s.dim("COLS")).div_ceil(64) },
            ],
            constants: |s, _| vec![("SPLITS", splits(s) as f64)],
            tunables: &[("WG", &[64.0, 128.0, 256.0])],
            refuses: |s, _| match (Order::of(s), Format::of(s)) {
                (Order::ColumnWise, Format::Q8_0 | Format::Q6K) => Some(format!(
                    "{} has no 32 weights of one scale in 16 bytes",
                    Format::of(s).name()
                )),
                (Order::ColumnWise, _) => None,
                _ => Some("its columns are no runs of weights".into()),
            },
            packing: Packing::Planes,
            ..PLAIN
        },
    ],
    prefer: |s| match (Order::of(s), s.dim("COLS")) {
        (Order::ColumnWise, _) => &["column_wise", "naive"],
        (_, 1) if s.dim("ROWS") >= 6144 => {
            &["planes_dp4a24", "planes_multicol", "planes", "workgroup", "naive"]
        }
        (_, 1) => &["planes_dp4a24", "planes", "workgroup", "naive"],
        _ => &["planes_dp4a24_cols", "planes_batch", "workgroup", "naive"],
    },
    cost: |s| {
        let (rows, k, cols) = (s.float("ROWS"), s.float("K"), s.float("COLS"));
        // What a row's last block holds beyond it need not be read.
        let weight = Format::of(s).block_bytes() as f64 / Format::of(s).block_len() as f64;
        Cost {
            bytes: rows * k * weight
                + cols * (4.0 * (1.0 + s.float("BETA")) * rows + act_bytes(s) * k),
            flops: 2.0 * rows * k * cols,
        }
    },
    tolerance: |s| Tolerance {
        k: 64.0 + 4.0 * s.float("K").sqrt(),
        rounding: 0.0,
        // A few rows may all but cancel, and NMSE then divides by next to nothing; the element
        // bound, which is relative to sum|w x|, still holds each of them.
        nmse: if s.dim("ROWS") < 8 { 9e-6 } else { 1e-10 },
        reason: "K rounded additions behave as a random walk of step eps * sum|w x|. Codes may be \
                 summed with an offset of up to 48 steps that is taken out per 32 weights, and \
                 scale and minimum apart: then terms some times larger than w x are rounded",
    },
    cases: || {
        let mut cases = Vec::new();
        for (i, &f) in Format::QUANTISED.iter().enumerate() {
            // 1152 is no whole number of superblocks of 256.
            let acts = (i % 2) as f64;
            cases.push(shape(37, 1152, f).with("ACTS", acts).with("FIRST", 64.0 * acts));
            // Into the residual stream.
            cases.push(shape(39, 320, f).with("BETA", 1.0).with("FIRST", 2.0 * acts));
        }
        let [q4_k, q8_0, q6_k] = [Format::Q4K, Format::Q8_0, Format::Q6K];
        cases.extend([
            // No whole number of anything.
            shape(5, 300, q8_0),
            shape(9, 300, q6_k),
            shape(3, 6912, q4_k),
            shape(33, 2048, Format::Q4_0),
            shape(1, 7, Format::Q5_1),
            shape(33, 512, q4_k).with("COLS", 3.0).with("FIRST", 3.0),
            shape(9, 1152, q6_k).with("COLS", 8.0).with("ACTS", 1.0),
            shape(40, 72, q8_0).with("COLS", 2.0).with("BETA", 1.0),
            shape(9, 301, q8_0).with("COLS", 2.0),
            // The packings of rows that are no whole number of superblocks.
            shape(67, 1152, q4_k).with("ORDER", Order::Flat.code()),
            shape(21, 1152, q4_k).with("ORDER", Order::Flat.code()).with("COLS", 5.0),
            shape(520, 33, q4_k).with("ORDER", Order::ColumnWise.code()).with("COLS", 2.0),
            shape(300, 300, Format::Q5K).with("ORDER", Order::ColumnWise.code()).with("BETA", 1.0),
        ]);
        cases
    },
    bench: || {
        let shape = |(rows, k), f| shape(rows, k, f);
        let mut shapes = Vec::new();
        for f in [Format::Q4K, Format::Q4_0] {
            shapes.push(shape((8192, 2048), f));
            shapes.push(shape((262_144, 1152), f));
        }
        for cols in [4.0, 8.0] {
            shapes.push(shape((8192, 2048), Format::Q4K).with("COLS", cols));
        }
        for order in [Order::Flat, Order::ColumnWise] {
            for size in [(1152, 6912), (262_144, 1152)] {
                shapes.push(shape(size, Format::Q4K).with("ORDER", order.code()));
            }
        }
        shapes.extend(Format::QUANTISED.iter().map(|f| shape((2048, 8192), *f)));
        shapes
    },
};
