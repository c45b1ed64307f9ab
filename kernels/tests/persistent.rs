//! Dispatches joined into one: the result is WGSL without overrides, and impossible joins are
//! refused.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lathe_kernels::persistent::{self, Code, FusedStage, Joined, Slot};
use lathe_kernels::{Capabilities, Constants, Grid, ReflectError, Reflection};

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

/// A text, specialised to the values of its overrides.
struct Text {
    wgsl: String,
    reflection: Arc<Reflection>,
    constants: Constants,
}

impl Text {
    fn new(wgsl: &str) -> Self {
        let reflection = Reflection::of(wgsl, "text").unwrap_or_else(|e| panic!("{e}\n{wgsl}"));
        let constants = reflection.constants([]).unwrap();
        Self { wgsl: wgsl.to_owned(), reflection: Arc::new(reflection), constants }
    }

    /// Its function `main` over buffers.
    fn code<'a>(
        &'a self,
        label: &str,
        buffers: impl IntoIterator<Item = (&'a str, usize)>,
    ) -> Code<'a> {
        Code {
            label: label.into(),
            text: &self.wgsl,
            reflection: &self.reflection,
            constants: &self.constants,
            function: "main",
            buffers: buffers.into_iter().collect(),
            stacked: BTreeMap::new(),
        }
    }
}

/// A stage of a built-in variant that can be a stage.
struct Stage {
    label: String,
    text: Text,
    entry: &'static str,
    groups: u32,
    refreshes: &'static [&'static str],
}

/// Stages of all variants, for the shapes that are benchmarked.
fn stages() -> Vec<Stage> {
    let mut list = Vec::new();
    for (kernel, problem) in
        lathe_kernels::kernels().iter().flat_map(|k| k.bench().into_iter().map(move |p| (k, p)))
    {
        let shape = &problem.shape;
        for variant in kernel.variants {
            if variant.unsupported(shape, &caps()).is_some() {
                continue;
            }
            let Some(geometry) = variant.as_stage(shape, &caps(), GRID) else { continue };
            let wgsl = lathe_kernels::source(kernel.name, variant.name).unwrap().text;
            let reflection = lathe_kernels::reflection(kernel.name, variant.name).unwrap();
            let given = shape.iter().chain(variant.constants(shape, &caps()));
            let constants = reflection.constants(given.chain(geometry)).unwrap();
            list.extend(variant.stages.iter().map(|stage| Stage {
                label: format!("{}/{}", kernel.name, variant.name),
                groups: (stage.grid)(shape, &constants) as u32,
                text: Text {
                    wgsl: wgsl.to_owned(),
                    reflection: Arc::clone(&reflection),
                    constants: constants.clone(),
                },
                entry: stage.entry,
                refreshes: variant.refreshes,
            }));
        }
    }
    list
}

impl Stage {
    /// Its stage over buffers of its own, numbered from `first` on.
    fn fused(&self, first: usize) -> FusedStage<'_> {
        let names = self.text.reflection.buffers.iter().map(|buffer| buffer.name.as_str());
        let code = self.text.code(&self.label, names.zip(first..));
        FusedStage {
            groups: self.groups,
            refreshes: self.refreshes,
            given: BTreeMap::from([("weights", 1 << 20)]),
            ..fused(Code { function: self.entry, ..code })
        }
    }
}

/// A grid without a limit of layers.
const fn grid(groups: u32, invocations: u32, prefetch: u32) -> Grid {
    Grid { groups, invocations, prefetch, layers: u32::MAX }
}

const GRID: Grid = grid(128, 256, 2);

/// A stage of two workgroups that has nothing special.
fn fused(code: Code<'_>) -> FusedStage<'_> {
    let (given, made) = (BTreeMap::new(), BTreeMap::new());
    FusedStage { code, groups: 2, pins_loads: false, refreshes: &[], given, made }
}

/// Stages of one layer.
fn join(stages: &[FusedStage<'_>], grid: Grid) -> Result<Joined, ReflectError> {
    let slots: Vec<_> = stages.iter().cloned().map(Slot::of).collect();
    persistent::join(&slots, 1, grid)
}

/// Any two stages join: names do not meet, and naga takes the whole.
#[test]
fn every_stage_joins_with_the_next() {
    let stages = stages();
    let stages: Vec<_> = stages.iter().zip((0..).step_by(32)).map(|(s, i)| s.fused(i)).collect();
    let labels: BTreeSet<_> = stages.iter().map(|p| p.code.label.clone()).collect();
    for wanted in ["attention_append/split_kv", "gemv_q/soa_dp4a24", "fused_ffn/pipelined"] {
        assert!(labels.contains(wanted), "{labels:?}");
    }
    for pair in stages.windows(2) {
        let shown = format!("{} and {}", pair[0].code.label, pair[1].code.label);
        let joined = join(pair, GRID).unwrap_or_else(|e| panic!("{shown}: {e}"));
        // Each keeps the rule of what may be done ahead of a wait.
        let reflection =
            joined.reflected().unwrap_or_else(|e| panic!("{shown}: {e}\n{}", joined.text));
        assert!(reflection.overrides.is_empty(), "{shown}");
        assert_eq!(reflection.entries.len(), 1, "{shown}");
        let (memory, invocations) =
            reflection.workgroup(persistent::ENTRY, &Constants::new()).unwrap();
        assert_eq!(invocations, GRID.invocations, "{shown}");
        // Shared, not added up.
        let alone = |p: &FusedStage<'_>| {
            let Code { reflection, function, constants, .. } = &p.code;
            reflection.workgroup(function, constants).unwrap().0
        };
        assert!(memory <= alone(&pair[0]) + alone(&pair[1]), "{shown}");
        // One arrival and one wait in the code that runs, wherever the wait is.
        let main = joined.text.split("@compute").nth(1).unwrap();
        assert_eq!(main.matches("grid_arrive(32u)").count(), 1, "{shown}\n{main}");
        let waits = joined.text.matches("grid_await(32u)").count();
        // A mebibyte is two rounds at most: a wait brings all of it, wherever workgroups wait.
        let weights = pair[1].code.buffers.contains_key("weights");
        let prefetches = joined.text.matches("grid_prefetch_1(); grid_await(32u)").count();
        assert_eq!(prefetches, if weights { waits } else { 0 }, "{shown}");
        assert!(waits == 1 || (waits == 2 && main.contains("else {")), "{shown}: {waits}");
        for (name, _) in &joined.buffers {
            let buffer = reflection.buffers.iter().find(|b| b.name == *name);
            assert!(buffer.is_some(), "{shown}: {name}");
        }
    }
}

/// A buffer that two stages bind is one variable where they agree on its type, and writable in both
/// where one of them writes it.
#[test]
fn a_buffer_between_stages_is_written_in_both() {
    let text = "override WG: u32 = 32u;\n\
                var<workgroup> held: array<f32, WG>;\n\
                @group(0) @binding(0) var<storage, read> x: array<f32>;\n\
                @group(0) @binding(1) var<storage, read_write> y: array<f32>;\n\
                @compute @workgroup_size(WG)\n\
                fn main(@builtin(local_invocation_index) at: u32) {\n\
                    held[at] = x[at];\n    workgroupBarrier();\n    y[at] = held[at ^ 1u];\n}\n";
    let text = Text::new(text);
    let stage = |x: usize, y: usize, groups: u32| FusedStage {
        groups,
        ..fused(text.code("swap", [("x", x), ("y", y)]))
    };
    let on = grid(2, 32, 0);
    let joined = join(&[stage(0, 1, 2), stage(1, 2, 1)], on).unwrap();
    assert_eq!(joined.buffers.iter().map(|b| b.1).collect::<Vec<_>>(), [0, 1, 2]);
    let declared = |i: usize| joined.text.lines().find(|l| l.contains(&format!("_{i}:"))).unwrap();
    assert!(declared(0).contains("<storage, read>"), "{}", joined.text);
    for i in [1, 2] {
        assert!(declared(i).contains("@coherent var<storage, read_write>"), "{}", joined.text);
    }
    assert_eq!(joined.text.matches("var<workgroup>").count(), 1, "{}", joined.text);
    assert!(joined.reflected().is_ok());

    let error = |stages: &[FusedStage<'_>], on| join(stages, on).unwrap_err().to_string();
    assert!(
        error(&[stage(0, 1, 1)], grid(2, 64, 0)).contains("workgroups of 32 among those of 64")
    );
    assert!(error(&[stage(0, 1, 1)], grid(3, 32, 0)).contains("no power of two"));
    let many: Vec<_> = (0..persistent::MAX_BARRIERS + 1).map(|_| stage(0, 1, 1)).collect();
    assert!(error(&many, on).contains("at most"));
    assert!(join(&many[1..], on).is_ok());
    // In a loop the first place waits as well, with a word that is there.
    let all: Vec<_> =
        many[1..].iter().map(|p| Slot { alternatives: vec![(vec![0, 1], p.clone())] }).collect();
    let last =
        format!("grid_await({}u)", persistent::ARRIVAL_WORDS / (persistent::MAX_BARRIERS + 1) * 63);
    assert_eq!(persistent::MAX_BARRIERS, 63);
    assert!(persistent::join(&all, 2, on).unwrap().text.contains(&last));
    let one = persistent::join(&all[..1], 2, on).unwrap_err().to_string();
    assert!(one.contains("a loop over layers of one stage"), "{one}");
    let mut unbound = stage(0, 1, 1);
    unbound.code.buffers.clear();
    assert!(error(&[unbound], on).contains("is not bound"));
}

/// Grid barriers prefetch all of the next weights if they have enough loads, else an evenly spaced
/// part. They prefetch nothing that the stages write or load ahead of their barriers themselves.
#[test]
fn waits_prefetch_the_next_weights() {
    let text = |element: &str| {
        format!(
            "@group(0) @binding(0) var<storage, read> weights: array<{element}>;\n\
             @group(0) @binding(1) var<storage, read_write> y: array<f32>;\n\
             @compute @workgroup_size(64)\n\
             fn main(@builtin(local_invocation_index) at: u32) {{\n\
                 y[at] = f32(weights[at + 1u]{});\n}}\n",
            if element.starts_with("vec4") { ".w" } else { "" }
        )
    };
    let texts = ["u32", "vec4<f32>"].map(|element| Text::new(&text(element)));
    let stage = |which: usize, weights: usize, granules: u64| {
        let buffers = [("weights", weights), ("y", 1)];
        FusedStage {
            given: BTreeMap::from([("weights", 1024 * granules + 1023)]),
            ..fused(texts[which].code(&format!("stage of {granules}"), buffers))
        }
    };
    // Two workgroups, each with one team that does not poll: a round is two granules.
    let stages = [stage(0, 2, 9), stage(0, 3, 3), stage(1, 4, 7)];
    let joined = join(&stages, grid(2, 64, 3)).unwrap();
    assert!(joined.reflected().is_ok(), "{}", joined.text);
    let brought = |text: &str, wait: usize| -> Vec<String> {
        let name = format!("fn grid_prefetch_{wait}()");
        let body = text.split(&name).nth(1).unwrap_or("").split("\n}").next().unwrap_or("");
        let lines: Vec<&str> = body.lines().map(str::trim).collect();
        // What the wait before loaded is used first, so that no wait is for its own.
        let seen = lines.iter().position(|line| *line == "grid_seen();");
        let loads = lines.iter().enumerate().filter_map(|(i, line)| {
            let (word, load) = line.strip_prefix("grid_seen_")?.split_once(" = ")?;
            assert!(seen < Some(i), "{body}");
            Some((word.parse::<usize>().unwrap(), load.to_owned()))
        });
        loads.enumerate().map(|(i, (word, load))| (assert_eq!(i, word), load).1).collect()
    };
    // Three granules are two rounds, the second of which has one to spare; seven are four, of which
    // the waits have one and three.
    let words = |at| format!("grid_buffer_2[min(at + {at}u, 2u) * 256u + lane * 8u];");
    let vectors =
        |at| format!("bitcast<u32>(grid_buffer_3[min(at + {at}u, 6u) * 64u + lane * 2u].x);");
    assert_eq!(brought(&joined.text, 1), [words(0), words(2), vectors(0)], "{}", joined.text);
    assert_eq!(brought(&joined.text, 2), [2, 4, 6].map(vectors));
    // The last wait's words are used at the end.
    assert!(joined.text.trim_end().ends_with("grid_seen();\n}"), "{}", joined.text);
    assert!(joined.text.contains("if ((grid_seen_0 ^ grid_seen_1 ^ grid_seen_2) == "));
    // With one load a wait two granules of seven: every third and a half.
    let joined = join(&stages, grid(2, 64, 1)).unwrap();
    assert_eq!(
        brought(&joined.text, 1),
        ["grid_buffer_2[min(u32(f32(at + 0u) * 1.5f), 2u) * 256u + lane * 8u];"]
    );
    assert!(brought(&joined.text, 2)[0].contains("f32(at + 0u) * 3.5f"), "{}", joined.text);
    // None where nobody asks, where the weights are what an earlier stage writes, or are no words.
    assert!(!join(&stages, grid(2, 64, 0)).unwrap().text.contains("grid_prefetch"));
    let made = [stage(0, 2, 9), stage(0, 1, 3)];
    assert!(!join(&made, grid(2, 64, 3)).unwrap().text.contains("grid_prefetch"));
    let pins_loads = [stage(0, 2, 9), FusedStage { pins_loads: true, ..stage(0, 3, 3) }];
    assert!(!join(&pins_loads, grid(2, 64, 3)).unwrap().text.contains("grid_prefetch"));
}

/// A stage that writes `y`; the next one reads it as `x`.
const WRITER: &str = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(32)
fn main(@builtin(local_invocation_index) at: u32) { y[at] = 1.0; }
";

const READER: &str = "@group(0) @binding(0) var<storage, read> w: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> z: array<f32>;
@group(0) @binding(3) var<storage, read_write> counter: array<atomic<u32>>;
var<workgroup> held: array<f32, 32>;
struct Cell { value: f32 }
var<workgroup> cell: Cell;
var<private> mine: f32;
const NEVER = false;
override LATE: bool = true;
fn await_input() {}
fn early(i: u32) -> f32 { return x[i]; }
fn deep(i: u32) -> f32 { return early(i + 1u); }
fn weight(at: ptr<function, f32>, i: u32) { *at = w[i]; mine = *at; }
fn waits() { await_input(); }
fn leaves(i: u32) { if (i > 3u) { return; } await_input(); }
";

/// Verdict on both stages on a grid of two workgroups, with `body` in the reader's entry point. The
/// reader has `groups` workgroups.
fn verdict(body: &str, groups: u32, refreshes: &'static [&'static str]) -> Result<(), String> {
    let reader = Text::new(&format!(
        "{READER}@compute @workgroup_size(32)\n\
         fn main(@builtin(local_invocation_index) at: u32) {{\n{body}\n}}\n"
    ));
    let writer = Text::new(WRITER);
    let buffers = [("w", 0), ("x", 1), ("z", 2), ("counter", 3)];
    let stages = [
        FusedStage { refreshes, ..fused(writer.code("writes, writer", [("y", 1)])) },
        FusedStage { groups, refreshes, ..fused(reader.code("reads, reader", buffers)) },
    ];
    let joined = join(&stages, grid(2, 32, 0)).unwrap();
    match joined.reflected() {
        Ok(_) => Ok(()),
        Err(ReflectError::Link(reason)) => Err(reason),
        Err(other) => panic!("{other}\n{}", joined.text),
    }
}

/// Accesses allowed before a grid barrier, with as many workgroups as the grid and with fewer.
#[test]
fn a_stage_may_load_ahead_what_nobody_writes() {
    for body in [
        "let a = w[at]; await_input(); z[at] = a + x[at];",
        "var a = 0.0; weight(&a, at); await_input(); z[at] = a + x[at] + mine;",
        "let a = w[at]; waits(); held[at] = early(at); workgroupBarrier(); z[at] = a + held[at];",
        // The way that is not taken is none.
        "var a = 0.0; if (NEVER) { a = x[at]; } await_input(); z[at] = a + x[at];",
        "var a = 0.0; if (!LATE) { a = x[at]; } await_input(); if (LATE) { a = x[at]; } z[at] = a;",
        "let n = arrayLength(&x); await_input(); if (at > n) { return; } z[at] = x[at];",
        "{ let a = w[at]; await_input(); z[at] = a; }",
        // Without a word of waiting, it waits before it begins.
        "z[at] = x[at];",
    ] {
        for groups in [1, 2] {
            assert_eq!(verdict(body, groups, &[]), Ok(()), "{groups}: {body}");
        }
    }
    // With more places than workgroups the wait comes before the first.
    assert_eq!(verdict("let a = x[at]; await_input(); z[at] = a;", 4, &[]), Ok(()));
    let renewed = "let a = z[at]; await_input(); z[at] = a + x[at];";
    assert_eq!(verdict(renewed, 2, &["z"]), Ok(()));
}

/// Bodies of the reader, each with a part of what is said of it.
const REFUSED: &str = "\
    let a = x[at]; await_input(); z[at] = a;
        `main` loads `x` ahead of await_input(), and `writes, writer`
    let a = early(at); await_input(); z[at] = a;
        `early` loads `x` ahead
    let a = deep(at); waits(); z[at] = a;
        `early` loads `x` ahead
    var a = 0.0; if (at > 3u) { a = x[at]; } await_input(); z[at] = a;
        loads `x` ahead
    var a = 0.0; if (at > 3u) { } else { a = x[at]; } await_input(); z[at] = a;
        loads `x`
    var a = 0.0; for (var i = 0u; i < 4u; i++) { a += x[i]; } await_input(); z[at] = a;
        loads `x`
    var a = 0.0; switch at { case 3u: { a = x[at]; } default: {} } await_input(); z[at] = a;
        loads `x`
    z[at] = w[at]; await_input(); z[at] += x[at];
        `main` writes `z` ahead of await_input(): others
    atomicAdd(&counter[0], 1u); await_input(); z[at] = x[at];
        writes `counter` ahead
    let a = atomicLoad(&counter[0]); await_input(); atomicStore(&counter[0], a);
        `counter` ahead
    let a = z[at]; await_input(); z[at] = a + x[at];
        loads `z` ahead of await_input(), and the stage writes it
    held[at] = w[at]; await_input(); z[at] = held[at ^ 1u];
        writes `held` ahead of await_input(): the stage before
    cell.value = w[0]; await_input(); z[at] = cell.value;
        writes `cell` ahead
    let await_input = x[at]; z[at] = await_input;
        names await_input() and never calls it
    if (NEVER) { await_input(); }
        names await_input() and never calls it
    if (at < 16u) { await_input(); } z[at] = x[at];
        `main` calls await_input() in a branch or a loop
    if (at < 16u) { await_input(); } else { await_input(); } z[at] = x[at];
        in a branch or a loop
    if (at < 16u) { waits(); } z[at] = x[at];
        in a branch or a loop
    for (var i = 0u; i < 2u; i++) { await_input(); } z[at] = x[at];
        in a branch or a loop
    switch at { case 1u: { await_input(); } default: {} } z[at] = x[at];
        in a branch or a loop
    await_input(); z[at] = x[at]; await_input();
        `main` calls await_input() a second time
    await_input(); z[at] = x[at]; if (at > 1u) { waits(); }
        in a branch or a loop
    waits(); waits(); z[at] = x[at];
        a second time
    if (at > 3u) { return; } await_input(); z[at] = x[at];
        `main` returns ahead of await_input()
    leaves(at); z[at] = x[at];
        `leaves` returns ahead of await_input()
";

#[test]
fn what_a_stage_may_not_do_ahead_of_its_wait_is_refused() {
    let lines: Vec<_> = REFUSED.lines().map(str::trim).collect();
    for fault in lines.chunks(2) {
        let [body, wanted] = fault else { panic!("{fault:?}") };
        for groups in [1, 2] {
            let said = verdict(body, groups, &[]).expect_err(body);
            assert!(said.starts_with("reads, reader: "), "{body}: {said}");
            assert!(said.contains(wanted), "{groups}: {body}: {said}");
        }
    }
}

/// The rule catches a built-in kernel: if it waits after its first read, a step is refused.
#[test]
fn a_built_in_stage_that_waits_too_late_is_refused() {
    let stages = stages();
    let stage = stages.iter().find(|s| s.label == "gemv_q/soa_dp4a24").unwrap();
    let wait = "await_input();";
    let needs = "round_x(0u, subgroup, sg, subgroup_lane);";
    let own = &stage.text.wgsl;
    assert!(own.contains(wait) && own.contains(needs), "{own}");
    let late = own.replacen(wait, "", 1).replacen(needs, &format!("{needs} {wait}"), 1);
    let said = |text: &str| {
        let reflection = Reflection::of(text, "text").unwrap_or_else(|e| panic!("{e}"));
        let stage = |y: usize, x: usize| {
            let buffers = reflection.buffers.iter().enumerate().map(|(i, buffer)| {
                match buffer.name.as_str() {
                    "x" => ("x", x),
                    "y" => ("y", y),
                    other => (other, 10 + i),
                }
            });
            let code = stage.text.code(&stage.label, buffers);
            FusedStage {
                groups: stage.groups,
                // What a product is added to is loaded too early as well, and is not meant.
                refreshes: &["y"],
                ..fused(Code { text, reflection: &reflection, function: stage.entry, ..code })
            }
        };
        let joined = join(&[stage(1, 0), stage(2, 1)], GRID).unwrap();
        joined.reflected().map(|_| ()).map_err(|e| e.to_string())
    };
    assert_eq!(said(own), Ok(()));
    let refused = said(&late).unwrap_err();
    assert!(refused.contains("`x` ahead of await_input()"), "{refused}");
}

/// A stage that adds a word of its layer to the previous stage's output.
const ADDER: &str = "@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
fn await_input() {}
fn word(i: u32) -> u32 { return weights[i / 4u][(i % 4u)]; }
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) at: u32) {
    let own = word(at);
    await_input();
    y[at] = x[at] + own;
}
";

/// Two such stages of five layers on two workgroups: the first reads the last one's output. In
/// layer 3 the second has an alternative.
fn rounds(text: &Text, stride: u64) -> [Slot<'_>; 2] {
    let stage = |label: &str, [weights, x, y]: [usize; 3], first: usize, bytes| {
        let stacked = BTreeMap::from([("weights", persistent::Stacked { first, stride })]);
        let code = text.code(label, [("weights", weights), ("x", x), ("y", y)]);
        let given = BTreeMap::from([("weights", bytes)]);
        FusedStage { given, ..fused(Code { stacked, ..code }) }
    };
    let one = Slot { alternatives: vec![((0..5).collect(), stage("first", [0, 1, 2], 0, 8192))] };
    let alternatives = vec![
        (vec![3], stage("seldom", [3, 2, 1], 3, 0)),
        (vec![0, 1, 2, 4], stage("usual", [4, 2, 1], 0, 0)),
    ];
    [one, Slot { alternatives }]
}

#[test]
fn layers_go_round_with_a_tensor_of_each_in_one_buffer() {
    let adder = Text::new(ADDER);
    let on = grid(2, 64, 2);
    let slots = rounds(&adder, 8192);
    let joined = persistent::join(&slots, 5, on).unwrap();
    let text = &joined.text;
    assert!(joined.reflected().is_ok(), "{text}");
    assert!(text.contains("for (var layer = 0u; layer < 5u; layer++)"), "{text}");
    // 8192 bytes are 512 elements of sixteen.
    assert!(text.contains("grid_buffer_0[grid_layer * 512u + (i / 4u)][(i % 4u)]"), "{text}");
    assert!(text.contains("[(grid_layer - 3u) * 512u + (i / 4u)]"), "{text}");
    // What layers share has no offset, and is written: read past caches.
    assert!(text.contains("grid_buffer_1[at]"), "{text}");
    let main = text.split("@compute").nth(1).unwrap();
    let [seldom, usual] = ["// seldom", "// usual"].map(|label| main.find(label).unwrap());
    assert!(main.contains("if (layer == 3u) {") && seldom < usual, "{main}");
    // Each place arrives once a layer, also the first, whose word is not that of those who gave up.
    assert_eq!(main.matches("grid_arrive(").count(), 2, "{main}");
    assert!(main.contains("grid_arrive(64u)") && main.contains("grid_arrive(32u)"), "{main}");
    for wait in ["grid_await(64u)", "grid_await(32u)"] {
        assert!(text.contains(wait), "{wait}: {text}");
    }
    // The last wait brings what the next layer begins with, and no layer behind the last.
    let last = text.split("fn grid_prefetch_1()").nth(1).unwrap();
    assert!(last.contains("grid_buffer_0[min(grid_layer + 1u, 4u) * 512u + min("), "{text}");
    // One layer needs neither.
    let mut one = slots[0].alternatives[0].1.clone();
    one.code.stacked.clear();
    let apart = persistent::join(&[Slot::of(one)], 1, on).unwrap();
    assert!(!apart.text.contains("grid_arrive(64u)") && !apart.text.contains("var layer"));
}

#[test]
fn layers_that_cannot_go_round_are_refused() {
    let on = grid(2, 64, 0);
    let said = |text: &str, stride: u64, change: &dyn Fn(&mut [Slot<'_>; 2])| -> String {
        let text = Text::new(text);
        let mut slots = rounds(&text, stride);
        change(&mut slots);
        let joined = persistent::join(&slots, 5, on);
        joined
            .and_then(|joined| joined.reflected().map(|_| ()))
            .map_or_else(|e| e.to_string(), |()| String::new())
    };
    let as_is = |_: &mut [Slot<'_>; 2]| {};
    assert_eq!(said(ADDER, 8192, &as_is), "");
    // Elements that do not lie on those of the next layer; a use that is no element.
    assert!(said(ADDER, 8200, &as_is).contains("weights cannot have a tensor a layer"));
    let whole = ADDER.replace("word(at);", "word(at) + arrayLength(&weights);");
    assert!(said(&whole, 8192, &as_is).contains("first: weights cannot have a tensor a layer"));
    // A layer without a way, and one with two.
    let none = |slots: &mut [Slot<'_>; 2]| slots[1].alternatives[1].0 = vec![0, 1, 2];
    assert!(said(ADDER, 8192, &none).contains("place 1 has 0 ways in layer 4"));
    let two = |slots: &mut [Slot<'_>; 2]| slots[1].alternatives[1].0 = vec![0, 1, 2, 3, 4];
    assert!(said(ADDER, 8192, &two).contains("place 1 has 2 ways in layer 3"));
    // What the first place loads ahead of its wait the last one of the layer before writes.
    let ahead = ADDER.replace("let own = word(at);", "let own = word(at) + x[at];");
    let fault = said(&ahead, 8192, &as_is);
    assert!(fault.contains("first: function `main` loads `x` ahead of await_input()"), "{fault}");
    assert!(fault.contains("`usual` of the same kernel writes it"), "{fault}");
    // In one layer nobody has written it.
    let ahead = Text::new(&ahead);
    let [first, _] = rounds(&ahead, 8192);
    let mut one = first.alternatives[0].1.clone();
    one.code.stacked.clear();
    let alone = persistent::join(&[Slot::of(one)], 1, on).unwrap();
    assert_eq!(alone.reflected().map(|_| ()).map_err(|e| e.to_string()), Ok(()));
}

/// Small tensors that a layer has of its own are prefetched one stage ahead, every sector once; not
/// where one of the layers lacks them, where they are large, or are written.
#[test]
fn waits_prefetch_small_tensors() {
    let text = ADDER.replace("x[at] + own;", "x[at] + own + u32(norm[at].x);");
    let text = format!("@group(0) @binding(3) var<storage, read> norm: array<vec2<f32>>;\n{text}");
    let text = Text::new(&text);
    let on = grid(2, 64, 1);
    let stacked = |first| persistent::Stacked { first, stride: 8192 };
    let slots = |bytes: u64, of_seldom: usize| {
        let mut slots = rounds(&text, 8192);
        for (buffer, stage) in [(10, (0, 0)), (of_seldom, (1, 0)), (11, (1, 1))] {
            let stage = &mut slots[stage.0].alternatives[stage.1].1;
            stage.given = BTreeMap::from([("norm", bytes)]);
            stage.code.buffers.insert("norm", buffer);
            stage.code.stacked.insert("norm", stacked(0));
        }
        persistent::join(&slots, 5, on).unwrap()
    };
    let of = |joined: &Joined, wait: usize| {
        assert!(joined.reflected().is_ok(), "{}", joined.text);
        let name = format!("fn grid_prefetch_{wait}()");
        let body = joined.text.split(&name).nth(1).unwrap_or("").split("\n}").next().unwrap();
        let number = joined.buffers.iter().position(|b| b.1 == 10 + 1 - wait);
        (body.to_owned(), number.unwrap())
    };
    // 1000 bytes are 31 sectors of four elements. Place 1 is read behind the wait of place 0.
    let joined = slots(1000, 11);
    for (wait, layer) in [(0, "grid_layer"), (1, "min(grid_layer + 1u, 4u)")] {
        let (body, number) = of(&joined, wait);
        let load = format!(
            "if (sector < 31u) {{ grid_seen_0 = bitcast<u32>(grid_buffer_{number}[{layer} * 1024u \
             + (sector - 0u) * 4u].x); }}"
        );
        assert!(body.contains(&load), "{load}\n{body}");
        // Each of the 64 invocations that do not poll has a sector of its own.
        assert!(body.contains("let sector = grid_workgroup * 32u + grid_lid - 32u;"), "{body}");
    }
    // Layer 3 reads another tensor there.
    assert_eq!(of(&slots(1000, 12), 0).0, "");
    assert!(of(&slots(1000, 12), 1).0.contains("sector"));
    for none in [slots(70_000, 11), slots(31, 11), slots(1000, 2)] {
        assert!(!of(&none, 0).0.contains("sector"), "{}", none.text);
    }
}

/// A stage is left out, and the next one computes its input itself.
#[test]
fn a_stage_makes_what_it_reads() {
    let maker = "@group(0) @binding(0) var<storage, read> parts: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
override PARTS: u32 = 2u;
var<workgroup> held: array<u32, 64>;
struct Sum { y: u32 }
fn sum(i: u32) -> u32 {
    var all = Sum(0u);
    for (var part = 0u; part < PARTS; part++) { all.y += parts[i * PARTS + part]; }
    return all.y;
}
fn shared_sum(i: u32) -> u32 { return held[i] + sum(i); }
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) at: u32) { y[at] = sum(at) + held[at]; }
";
    let reader = ADDER.replace("x[at] + own", "x[(at + 1u) % 64u] + own + weights[0].x");
    let mut maker = Text::new(maker);
    maker.constants.insert("PARTS".into(), 3.0);
    let joined = |reader: &str, function: &'static str| {
        let made = Code { function, ..maker.code("made, maker", [("parts", 7)]) };
        let reader = Text::new(reader);
        let reads = FusedStage {
            made: BTreeMap::from([("x", made)]),
            ..fused(reader.code("reads, reader", [("weights", 0), ("y", 2)]))
        };
        let on = grid(2, 64, 0);
        join(&[reads], on)
    };
    let run = joined(&reader, "sum").unwrap();
    let text = &run.text;
    run.reflected().unwrap_or_else(|e| panic!("{e}\n{text}"));
    // The index is the argument; the function has its constants and its buffer, and nothing more
    // of its text.
    assert!(text.contains("= p0m0_sum((at + 1u) % 64u) + own"), "{text}");
    assert!(text.contains("const p0m0_PARTS: u32 = 3u;"), "{text}");
    let buffers: Vec<_> = run.buffers.iter().map(|b| b.1).collect();
    assert_eq!(buffers, [7, 0, 2], "{text}");
    assert!(!text.contains("held") && !text.contains("p0m0_main"), "{text}");
    let said = |reader: &str, function| joined(reader, function).unwrap_err().to_string();
    assert!(said(&reader, "total").contains("made, maker: no function total"));
    assert!(said(&reader, "main").contains("made, maker: no function main"));
    let fault = said(&reader, "shared_sum");
    assert!(fault.contains("shared_sum takes held, which is a stage's own"), "{fault}");
    let whole = reader.replace("let own = word(at);", "let own = arrayLength(&x);");
    let fault = said(&whole, "sum");
    assert!(fault.contains("reads, reader: x is not only read by elements"), "{fault}");
}
