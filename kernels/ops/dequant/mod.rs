//! Quantised rows to plain values, for a generic matrix product or a reader of weights.

use crate::declare::*;

crate::params! {
    /// Parameters of `dequant`.
    pub struct Dequant {
        rows: usize = dim("ROWS", "rows", 8, 40),
        k: usize = dim("K", "elements of a row", 256, 2500),
        weight: Format = choice("WEIGHT", "storage format of the rows", &Format::QUANTISED),
        act_format: FloatFormat = ACT_FORMAT_OUT,
    }
}

impl Dequant {
    fn elements(&self) -> usize {
        self.rows * self.k
    }

    /// Elements of a store of sixteen bytes.
    fn per_store(&self) -> usize {
        16 / self.act_format.bytes()
    }

    /// Values of `PER` and `WG`. Several stores an invocation only where one already fills a large
    /// device (270336 invocations on 132 multiprocessors), and then in smaller workgroups.
    fn rounds(&self) -> Overrides {
        let (per, wg) = match self.elements() / self.per_store() {
            0..=0x4_0000 => (1.0, 256.0),
            0x4_0001..=0x8_0000 => (2.0, 256.0),
            _ => (4.0, 64.0),
        };
        vec![("PER", per), ("WG", wg)]
    }

    /// `overrides`, and where the fields of packed rows lie.
    fn with_fields(&self, packing: Packing, mut overrides: Overrides) -> Overrides {
        overrides.extend(self.weight.fields(self.k, packing));
        overrides
    }
}

/// Rows of y begin on sixteen bytes only then.
fn whole_stores(p: &Dequant, _: &Capabilities) -> Option<String> {
    no_multiple("K", p.k, p.per_store())
}

const ROUNDS: &str = "WG=64|128|256|512,PER=1|2|4";

/// The declaration.
pub static OPERATION: Declaration<Dequant> = Declaration {
    name: "dequant",
    summary: "quantised rows (ROWS, K) to f32 or f16, tight row-major",
    fuses: None,
    state: &[],
    bindings: &[
        spreads(
            Binding::<Dequant>::input(
                "weights",
                &|p, _| Elem::Weights(Matrix::rows(p.weight, p.k)),
                len!(p => p.rows * p.k),
            )
            .drawn(&|_| Draw::TinyRows),
        ),
        Binding::output("y", floats!(act_format), len!(p => p.rows * p.k)),
    ],
    variants: &[
        Variant::sized("naive", &[Stage::main(&|p, c| groups_for(p.elements().div_ceil(2), c))]),
        Variant {
            name: "subgroup",
            stages: &[Stage::main(&|p, c| {
                (p.rows * p.k.div_ceil(256)).div_ceil(c["SPANS_PER_WG"] as usize)
            })],
            constants: &|p, caps| {
                let size = caps.subgroup.map_or(32, |(_, max)| max.max(4));
                let subgroups = f64::from((256 / size).max(1));
                let fixed = f64::from(caps.fixed_subgroup());
                p.with_fields(Packing::Blocks, vec![("SPANS_PER_WG", subgroups), ("SG", fixed)])
            },
            tunables: "WG=64|128|256|512,SPANS_PER_WG=2|4|8|16|32",
            unsupported: &whole_stores,
            ..Variant::PLAIN
        },
        Variant {
            constants: &|p, _| p.with_fields(Packing::Blocks, Vec::new()),
            tunables: "WG=64|128|256|512,TILE=2048|4096|8192",
            unsupported: &whole_stores,
            name: "shared",
            stages: &[Stage::main(&|p, c| p.rows * p.k.div_ceil(c["TILE"] as usize))],
            ..Variant::PLAIN
        },
        Variant {
            name: "vec4",
            stages: &[Stage::main(&|p, c| {
                (p.elements() / p.per_store()).div_ceil((c["WG"] * c["PER"]) as usize)
            })],
            constants: &|p, _| p.with_fields(Packing::Soa, p.rounds()),
            tunables: ROUNDS,
            unsupported: &whole_stores,
            packing: Packing::Soa,
            ..Variant::PLAIN
        },
        Variant {
            name: "multicol",
            stages: &[Stage::main(&|p, c| {
                let groups = p.rows.div_ceil(c["PER"] as usize);
                groups_for(groups * (p.k / p.per_store()), c)
            })],
            constants: &|p, _| p.with_fields(Packing::Soa, p.rounds()),
            tunables: ROUNDS,
            unsupported: &whole_stores,
            packing: Packing::Soa,
            ..Variant::PLAIN
        },
    ],
    prefer: &|_| &["vec4", "naive"],
    cost: &|p, _| {
        let n = p.elements() as f64;
        let read = p.rows as f64 * p.weight.row_bytes(p.k) as f64;
        Cost { bytes: read + p.act_format.bytes() as f64 * n, flops: 2.0 * n }
    },
    tolerance: &|_, _| {
        Tolerance::new(
            0.0,
            1e-14,
            "every product is exact in f32 and at most one sum is rounded, in any order",
        )
    },
    cases: "
        ROWS=5:
            # Nine superblocks, more than one tile; no whole number of anything.
            K=2304|77,WEIGHT=q8_0|q4_1|q5_1|q5_k
            K=2304|77,WEIGHT=q4_0|q5_0|q4_k|q6_k,ACT_FORMAT=f16
            # No whole number of superblocks; more rows than invocations take together.
            ROWS=9,K=1152,WEIGHT=q4_k|q5_0
            ROWS=1
            # More workgroups than one grid dimension holds, for the variants of one row a group;
            # four rounds for those that have them.
            ROWS=65537,K=32,WEIGHT=q4_0
    ",
    bench: "
        ROWS=8192,K=8192:
            WEIGHT=q4_k|q8_0|q4_0|q6_k:
                ACT_FORMAT=f32|f16
            ROWS=65536,K=1152,WEIGHT=q4_0
    ",
};
