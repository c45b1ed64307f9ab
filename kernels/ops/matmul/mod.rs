//! Matrix times matrix, the bulk of a prompt: many tokens at once.

use crate::declare::*;

mod tile;

use tile::{ENOUGH, Product, Tile};

crate::params! {
    /// Parameters of `matmul`.
    pub struct Matmul {
        n_tokens: usize = dim("N_TOKENS", "rows of x and y: tokens", 16, 70),
        rows: usize = dim("ROWS", "rows of the matrix, elements made in a row of y", 64, 140),
        k: usize = dim("K", "columns of the matrix, elements of a row of x", 32, 300),
        weight: Format = weight(&Format::ALL),
        packing: Packing = choice("PACKING", "how quantised rows are laid out", &Packing::ALL),
        act_format: FloatFormat = ACT_FORMAT_IN,
        y_offset: usize =
            start("Y_OFFSET", "element of a row of y that row 0 of the matrix makes", 70),
        y_after: usize = Y_AFTER,
        beta: Beta = BETA,
    }
}

/// Tiles of the sizes a variant is compiled with.
fn tile_grid(p: &Matmul, c: &Constants) -> usize {
    product(p).tiles(c["TM"] as usize, c["TN"] as usize)
}

fn product(p: &Matmul) -> Product {
    Product { n_tokens: p.n_tokens, rows: p.rows, k: p.k }
}

/// Tolerance of f32 arithmetic, the same for every variant that keeps its operands.
fn f32_tolerance(p: &Matmul, _: State) -> Tolerance {
    Tolerance::new(
        8.0 + 2.0 * (p.k as f64).sqrt(),
        // A few elements may all but cancel, and NMSE then divides by next to nothing; the element
        // bound, which is relative to sum|w x|, still holds each of them.
        if p.n_tokens * p.rows < 8 { 9e-6 } else { 1e-10 },
        "K rounded additions behave as a random walk of step eps * sum|w x|; the rigorous \
                 bound K*eps would hide a missing product",
    )
}

/// Tolerance with operands rounded to f16. Activations that are f16 already and weights whose
/// values have 11 bits or fewer are not rounded again.
fn f16_tolerance(p: &Matmul, _: State) -> Tolerance {
    let weights = !matches!(p.weight, Format::F16 | Format::Bf16);
    let activations = p.act_format == FloatFormat::F32;
    let f16_operands = u32::from(weights) + u32::from(activations);
    let k = p.k as f64;
    Tolerance {
        f16_operands,
        f16_range: activations,
        ..Tolerance::new(
            8.0 + 2.0 * k.sqrt() + k / 16.0,
            if f16_operands > 0 { 1e-6 } else { 1e-9 },
            "matrix units truncate sums, up to one unit in the last place every 16 products; else \
             as f32. Operands rounded to f16 err by up to 2^-11 each, of which the reference \
             allows six standard deviations; f32 activations beyond 65504 are not held",
        )
    }
}

/// Parts of the columns that cooperative_matrix_split makes.
fn splits(p: &Matmul) -> usize {
    Tile::of(p.n_tokens).splits(product(p), 2 * ENOUGH)
}

/// Tolerance with only the weights rounded to f16: activations as two f16 keep 21 bits.
fn two_f16_tolerance(p: &Matmul, s: State) -> Tolerance {
    let one = f16_tolerance(&Matmul { act_format: FloatFormat::F16, ..*p }, s);
    Tolerance {
        k: one.k + 8.0,
        f16_range: true,
        reason: "two f16 keep 21 bits of an activation, four units in the last place of f32; \
                 weights and sums as with activations of f16, and those beyond 65504 are not held",
        ..one
    }
}

/// Refuses formats for which a split into two f16 gains nothing.
fn nothing_left(p: &Matmul) -> Option<String> {
    match (p.act_format, p.weight) {
        (FloatFormat::F16, _) => Some("ACT_FORMAT=f16 is not f32".into()),
        (_, Format::F32) => Some("WEIGHT=f32 exceeds 16 bits".into()),
        _ => None,
    }
}

/// Refuses fewer tokens than half of a fragment.
fn few(p: &Matmul) -> Option<String> {
    (p.n_tokens < 8).then(|| format!("N_TOKENS={} is below 8", p.n_tokens))
}

/// Refuses a split where the tiles alone fill a large GPU, or where K is too short.
fn nothing_to_split(p: &Matmul) -> Option<String> {
    let (n, rows, k) = (p.n_tokens, p.rows, p.k);
    (splits(p) < 2).then(|| format!("N_TOKENS={n}, ROWS={rows} and K={k} leave nothing to split"))
}

/// Common part of the variants on matrix units.
const MATRIX_UNITS: Variant<Matmul> = Variant {
    stages: &[Stage::main(&tile_grid)],
    unsupported: &|p, _| few(p),
    tolerance: Some(&f16_tolerance),
    ..Variant::PLAIN
};

/// Common part of the variants that split the columns and add their sums in a second stage.
const SPLIT: Variant<Matmul> = Variant {
    stages: &[
        Stage::main(&|p, c| splits(p) * tile_grid(p, c)),
        Stage { entry: "sum", grid: &|p, _| (p.n_tokens * p.rows).div_ceil(256) },
    ],
    constants: &|p, caps| {
        let mut constants = Tile::of(p.n_tokens).overrides(caps);
        constants.push(("SPLITS", splits(p) as f64));
        constants
    },
    ..MATRIX_UNITS
};

/// The declaration.
pub static OPERATION: Declaration<Matmul> = Declaration {
    name: "matmul",
    summary: "rows (N_TOKENS, K) times a matrix (ROWS, K) transposed, f32 accumulation",
    fuses: None,
    state: &[],
    bindings: &[
        Binding::input(
            "weights",
            &|p, _| {
                let packing = Some(p.packing);
                Elem::Weights(Matrix { packing, ..Matrix::rows(p.weight, p.k) })
            },
            len!(p => p.rows * p.k),
        ),
        spreads(Binding::input("x", floats!(act_format), len!(p => p.n_tokens * p.k))),
        spreads(Binding::in_out(
            "y",
            &f32s,
            len!(p => p.n_tokens * (p.y_offset + p.rows + p.y_after)),
        )),
        Binding::scratch("partials", &f32s, len!(p => splits(p) * p.n_tokens * p.rows)),
    ],
    variants: &[
        Variant::sized("naive", &[Stage::main(&|p, c| groups_for(p.n_tokens * p.rows, c))]),
        Variant::new("tiled", &[Stage::main(&|p, _| product(p).tiles(16, 16))]),
        Variant {
            constants: &|p, _| {
                let (tm, tn, rm) = if product(p).tiles(128, 128) >= ENOUGH {
                    (128.0, 128.0, 8.0)
                } else if product(p).tiles(64, 128) >= ENOUGH {
                    (64.0, 128.0, 4.0)
                } else {
                    (64.0, 64.0, 4.0)
                };
                vec![("TM", tm), ("TN", tn), ("RM", rm)]
            },
            tunables: "TM=64|128,TN=64|128,RM=4|8",
            ..Variant::new("register_tiled", &[Stage::main(&tile_grid)])
        },
        Variant {
            name: "cooperative_matrix",
            constants: &|p, caps| {
                let large = Tile::of(p.n_tokens);
                let small = Tile::SMALL;
                let enough = p.n_tokens <= 64 || product(p).tiles(large.tm, large.tn) >= ENOUGH;
                if enough { large } else { small }.overrides(caps)
            },
            tunables: "TM=64|128,TN=64|128,TK=32|64,FM=2|4,FN=2|4",
            ..MATRIX_UNITS
        },
        Variant {
            name: "cooperative_matrix_split",
            unsupported: &|p, _| few(p).or_else(|| nothing_to_split(p)),
            ..SPLIT
        },
        Variant {
            name: "cooperative_matrix_two",
            constants: &|p, caps| {
                // The registers hold twice the fragments of x.
                let tile = if p.n_tokens > 64 { Tile::SMALL } else { Tile::of(p.n_tokens) };
                tile.overrides(caps)
            },
            tunables: "TM=64|128,TN=64|128,TK=32|64",
            unsupported: &|p, _| few(p).or_else(|| nothing_left(p)),
            tolerance: Some(&two_f16_tolerance),
            ..MATRIX_UNITS
        },
        Variant {
            name: "cooperative_matrix_two_split",
            unsupported: &|p, _| {
                few(p)
                    .or_else(|| nothing_left(p))
                    .or_else(|| exceeds("N_TOKENS", p.n_tokens, 64))
                    .or_else(|| nothing_to_split(p))
            },
            tolerance: Some(&two_f16_tolerance),
            ..SPLIT
        },
        Variant {
            name: "cooperative_matrix_8",
            constants: &|_, caps| {
                Tile { tm: 32, tn: 32, tk: 32, fragments: (2, 2) }.overrides(caps)
            },
            tunables: "TM=32|64,TN=32|64,TK=16|32,FM=2|4,FN=2|4",
            ..MATRIX_UNITS
        },
    ],
    // Matrix units only where weights lose little: quantised ones, which f16 rounds, with
    // activations that are rounded to f16 too; f32 weights, which were wanted as they are, never.
    prefer: &|p| match (p.act_format, p.weight, splits(p)) {
        (FloatFormat::F16, Format::F32, _) => &["register_tiled", "tiled", "naive"],
        (FloatFormat::F16, _, 1) => {
            &["cooperative_matrix", "cooperative_matrix_8", "register_tiled", "tiled", "naive"]
        }
        (FloatFormat::F16, ..) => &[
            "cooperative_matrix_split",
            "cooperative_matrix",
            "cooperative_matrix_8",
            "register_tiled",
            "tiled",
            "naive",
        ],
        (_, Format::F16 | Format::Bf16, _) => &[
            "cooperative_matrix_two_split",
            "cooperative_matrix_two",
            "register_tiled",
            "tiled",
            "naive",
        ],
        _ => &["register_tiled", "tiled", "naive"],
    },
    cost: &|p, _| {
        let (m, rows, k) = (p.n_tokens as f64, p.rows as f64, p.k as f64);
        let beta = f64::from(p.beta.code());
        let row = 4.0 * (1.0 + beta) * rows + p.act_format.bytes() as f64 * k;
        Cost { bytes: rows * p.weight.row_bytes(p.k) as f64 + m * row, flops: 2.0 * m * rows * k }
    },
    tolerance: &f32_tolerance,
    cases: "
        ACT_FORMAT=f16:
            # Several depths of a tile and of a block, tiles not full in N_TOKENS and ROWS.
            WEIGHT=f32|f16|bf16:
                N_TOKENS=9,ROWS=70,K=300,ACT_FORMAT=f32
                N_TOKENS=33,ROWS=130,K=256,Y_OFFSET=4
                # K in no words, whole tiles of y between others' elements.
                N_TOKENS=12,ROWS=40,K=77,Y_OFFSET=1
                N_TOKENS=10,ROWS=3,K=44,ACT_FORMAT=f32,Y_AFTER=2
            WEIGHT=q8_0|q4_0|q4_1|q5_0|q5_1|q4_k|q5_k|q6_k:
                N_TOKENS=9,ROWS=70,K=300,ACT_FORMAT=f32
                N_TOKENS=33,ROWS=130,K=256,Y_OFFSET=4
                N_TOKENS=17,ROWS=65,K=300,PACKING=soa,Y_AFTER=3
                N_TOKENS=16,ROWS=24,K=1152,PACKING=soa,ACT_FORMAT=f32
            # A whole tile of 128 x 128, one of 64 x 64 beside others' elements.
            N_TOKENS=128,ROWS=128,K=64,WEIGHT=f16
            N_TOKENS=64,ROWS=64,K=96,WEIGHT=bf16,Y_OFFSET=64,Y_AFTER=32
            # Added to what y held, in whole tiles and in others.
            WEIGHT=f32|f16|bf16|q4_k,BETA=1:
                N_TOKENS=64,ROWS=64,K=96; N_TOKENS=35,ROWS=70,K=256
                N_TOKENS=9,ROWS=33,K=96,ACT_FORMAT=f32
            # One element.
            ACT_FORMAT=f32
            # Activations of f32 in whole tiles, and in parts of the columns.
            WEIGHT=f16|bf16:
                N_TOKENS=192,ROWS=128,K=160,ACT_FORMAT=f32
                N_TOKENS=16,ROWS=64,K=1152,ACT_FORMAT=f32,BETA=1
            # Columns in parts, the last one shorter.
            WEIGHT=f16|bf16|q8_0:
                N_TOKENS=16,ROWS=48,K=1152; N_TOKENS=40,ROWS=200,K=1000
                N_TOKENS=128,ROWS=256,K=2048; N_TOKENS=300,ROWS=130,K=600
                Y_OFFSET=4,Y_AFTER=8,BETA=1:
                    N_TOKENS=16,ROWS=48,K=1152; N_TOKENS=40,ROWS=200,K=1000
                    N_TOKENS=128,ROWS=256,K=2048; N_TOKENS=300,ROWS=130,K=600
    ",
    bench: "
        ACT_FORMAT=f16:
            N_TOKENS=128|512,ROWS=1152,K=1152,WEIGHT=f16
            N_TOKENS=128|512,ROWS=13824,K=1152,WEIGHT=f16
            N_TOKENS=128|512,ROWS=8192,K=2048,WEIGHT=f16
            N_TOKENS=128|512,ROWS=8192,K=2048,WEIGHT=q4_k,PACKING=soa
            N_TOKENS=16,ROWS=1152,K=1152,WEIGHT=bf16,ACT_FORMAT=f32
            N_TOKENS=128,ROWS=8192,K=2048,WEIGHT=bf16,ACT_FORMAT=f32
    ",
};
