//! Dispatches joined into one: what comes of it is WGSL without overrides, and what cannot be is
//! refused.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lathe_kernels::phases::{self, Grid, Phase};
use lathe_kernels::{Capabilities, Constants, Reflection, Shape};

/// A large GPU with subgroups of 32.
fn caps() -> Capabilities {
    Capabilities {
        subgroup: Some((32, 32)),
        invocations: 1024,
        workgroup_memory: 48 << 10,
        f16: true,
        storage_buffers: 64,
        ..Capabilities::minimal()
    }
}

/// A stage of a variant that can be a phase.
struct Stage {
    label: String,
    text: &'static str,
    reflection: Arc<Reflection>,
    constants: Constants,
    entry: &'static str,
    groups: u32,
}

/// All of them, each with buffers of its own.
struct Stages(Vec<Stage>);

impl Stages {
    fn of(grid: Grid, shapes: impl Fn(&'static lathe_kernels::Kernel) -> Vec<Shape>) -> Self {
        let mut list = Vec::new();
        for kernel in lathe_kernels::kernels() {
            for shape in shapes(kernel) {
                for variant in &kernel.variants {
                    if variant.unsupported(&shape, &caps()).is_some() {
                        continue;
                    }
                    let Some(geometry) = variant.phase(&shape, &caps(), grid) else { continue };
                    let source = lathe_kernels::source(kernel.name, variant.name).unwrap();
                    let reflection = lathe_kernels::reflection(kernel.name, variant.name).unwrap();
                    let given = shape.iter().chain(variant.constants(&shape, &caps()));
                    let constants = reflection.constants(given.chain(geometry)).unwrap();
                    for stage in &variant.stages {
                        let groups = stage.grid(&shape, &constants) as u32;
                        let label = format!("{}/{}", kernel.name, variant.name);
                        let (text, entry) = (source.text, stage.entry);
                        let (reflection, constants) = (Arc::clone(&reflection), constants.clone());
                        list.push(Stage { label, text, reflection, constants, entry, groups });
                    }
                }
            }
        }
        Self(list)
    }

    fn phases(&self) -> Vec<Phase<'_>> {
        let mut next = 0;
        self.0
            .iter()
            .map(|s| Phase {
                label: s.label.clone(),
                text: s.text,
                reflection: &s.reflection,
                constants: &s.constants,
                entry: s.entry,
                groups: s.groups,
                buffers: s
                    .reflection
                    .buffers
                    .iter()
                    .map(|buffer| {
                        next += 1;
                        (buffer.name.as_str(), next)
                    })
                    .collect(),
                early: true,
            })
            .collect()
    }
}

const GRID: Grid = Grid { groups: 128, invocations: 256 };

fn benchmarked(kernel: &'static lathe_kernels::Kernel) -> Vec<Shape> {
    kernel.bench().into_iter().map(|problem| problem.shape).collect()
}

/// Any phases beside each other: names do not meet, and naga takes the whole.
#[test]
fn every_phase_joins_with_the_next() {
    let stages = Stages::of(GRID, benchmarked);
    let phases = stages.phases();
    let labels: BTreeSet<_> = phases.iter().map(|p| p.label.clone()).collect();
    for wanted in ["attention_append/split_kv", "gemv_q/planes_dp4a24", "fused_ffn/sweep"] {
        assert!(labels.contains(wanted), "{labels:?}");
    }
    for pair in phases.windows(2) {
        let shown = format!("{} and {}", pair[0].label, pair[1].label);
        let joined = phases::join(pair, GRID).unwrap_or_else(|e| panic!("{shown}: {e}"));
        let reflection = Reflection::of(&joined.text, "joined")
            .unwrap_or_else(|e| panic!("{shown}: {e}\n{}", joined.text));
        assert!(reflection.overrides.is_empty(), "{shown}");
        assert_eq!(reflection.entries.len(), 1, "{shown}");
        let (memory, invocations) = reflection.workgroup(phases::ENTRY, &Constants::new()).unwrap();
        assert_eq!(invocations, GRID.invocations, "{shown}");
        // Shared, not added up.
        let alone = |p: &Phase<'_>| p.reflection.workgroup(p.entry, p.constants).unwrap().0;
        assert!(memory <= alone(&pair[0]) + alone(&pair[1]), "{shown}");
        // One arrival and one wait in the code that runs, wherever the wait is.
        let main = joined.text.split("@compute").nth(1).unwrap();
        assert_eq!(main.matches("run_arrive(32u)").count(), 1, "{shown}\n{main}");
        let waits = joined.text.matches("run_await(32u)").count();
        assert!(waits == 1 || (waits == 2 && main.contains("else {")), "{shown}: {waits}");
        for (name, _) in &joined.buffers {
            let buffer = reflection.buffers.iter().find(|b| b.name == *name);
            assert!(buffer.is_some(), "{shown}: {name}");
        }
    }
}

/// A buffer that two phases bind is one variable where they agree on its type, and writable in both
/// where one of them writes it.
#[test]
fn a_buffer_between_phases_is_written_in_both() {
    let text = "override WG: u32 = 32u;\n\
                var<workgroup> held: array<f32, WG>;\n\
                @group(0) @binding(0) var<storage, read> x: array<f32>;\n\
                @group(0) @binding(1) var<storage, read_write> y: array<f32>;\n\
                @compute @workgroup_size(WG)\n\
                fn main(@builtin(local_invocation_index) at: u32) {\n\
                    held[at] = x[at];\n    workgroupBarrier();\n    y[at] = held[at ^ 1u];\n}\n";
    let reflection = Reflection::of(text, "text").unwrap();
    let constants = reflection.constants([]).unwrap();
    let phase = |x: usize, y: usize, groups: u32| Phase {
        label: "swap".into(),
        text,
        reflection: &reflection,
        constants: &constants,
        entry: "main",
        groups,
        buffers: BTreeMap::from([("x", x), ("y", y)]),
        early: false,
    };
    let grid = Grid { groups: 2, invocations: 32 };
    let joined = phases::join(&[phase(0, 1, 2), phase(1, 2, 1)], grid).unwrap();
    assert_eq!(joined.buffers.iter().map(|b| b.1).collect::<Vec<_>>(), [0, 1, 2]);
    let declared = |i: usize| joined.text.lines().find(|l| l.contains(&format!("_{i}:"))).unwrap();
    assert!(declared(0).contains("<storage, read>"), "{}", joined.text);
    for i in [1, 2] {
        assert!(declared(i).contains("@coherent var<storage, read_write>"), "{}", joined.text);
    }
    assert_eq!(joined.text.matches("var<workgroup>").count(), 1, "{}", joined.text);
    assert!(Reflection::of(&joined.text, "joined").is_ok());

    let error = |phases: &[Phase<'_>], grid| phases::join(phases, grid).unwrap_err().to_string();
    let wide = Grid { groups: 2, invocations: 64 };
    assert!(error(&[phase(0, 1, 1)], wide).contains("workgroups of 32 among those of 64"));
    let three = Grid { groups: 3, invocations: 32 };
    assert!(error(&[phase(0, 1, 1)], three).contains("no power of two"));
    let many: Vec<_> = (0..phases::MOST_WAITS + 2).map(|_| phase(0, 1, 1)).collect();
    assert!(error(&many, grid).contains("at most"));
    let unbound = Phase { buffers: BTreeMap::new(), ..phase(0, 1, 1) };
    assert!(error(&[unbound], grid).contains("is not bound"));
}
