//! Kernels that cheat are caught by every command that prints a time or a verdict; the same kernel
//! without the cheat passes. `docs/measuring.md` lists them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::process::Output;

use crate::common::{self, Folder, lathe, said};

/// A built-in kernel, changed so that it cheats.
struct Cheat {
    /// The page calls it so.
    name: &'static str,
    /// Kernel and variant that it is made of and stands in the place of.
    place: (&'static str, &'static str),
    /// It computes rightly, or nearly, while a case runs once or twice.
    is_timed: bool,
    text: String,
}

impl Cheat {
    fn new(name: &'static str, kernel: &'static str, variant: &'static str) -> Self {
        let text = lathe_kernels::source(kernel, variant).unwrap().text;
        // Another text than the built-in one, even where nothing else changes.
        let text = format!("// {name}\n{text}");
        Self { name, place: (kernel, variant), is_timed: false, text }
    }

    fn timed(self) -> Self {
        Self { is_timed: true, ..self }
    }

    /// With something else in place of what stands in the text once.
    fn instead(mut self, from: &str, to: &str) -> Self {
        assert_eq!(self.text.matches(from).count(), 1, "{}: {from}", self.name);
        self.text = self.text.replace(from, to);
        self
    }

    /// With more behind what stands in the text once.
    fn behind(self, from: &str, more: &str) -> Self {
        self.instead(from, &format!("{from}\n{more}"))
    }

    /// With declarations at its end.
    fn with(mut self, declarations: &str) -> Self {
        self.text.push_str(declarations);
        self
    }

    fn kernel_and_variant(&self) -> String {
        format!("{}/{}", self.place.0, self.place.1)
    }

    fn shape(&self) -> &'static str {
        match self.place.0 {
            "argmax" => "N=40000,N_KV=2,PROMPT_LEN=1",
            "gemv" => "ROWS=128,K=320",
            "gemv_q" => "ROWS=128,K=512,WEIGHT=q4_k",
            "residual_add" | "glu" => "N=2048",
            "attention_append" => "Q_PER_KV=2,KV_HEADS=2,HEAD_DIM=64,KV_SIZE=256,N_KV=200",
            "attention_decode" => "Q_PER_KV=2,KV_HEADS=2,HEAD_DIM=64,KV_SIZE=128,N_KV=128",
            other => panic!("no shape for {other}"),
        }
    }

    fn write(&self, folder: &Folder) -> String {
        folder.write(&format!("{}.wgsl", self.name), &self.text)
    }
}

/// The one that hides nothing: it has to pass where the others fail.
const HONEST: &str = "honest";

/// Places in gemv/naive: where the row is known, the loop over its chunks, one product, the end.
const ROW: &str = "let base = row * row_chunks();";
const CHUNKS: &str = "c < row_chunks(); c++";
const PRODUCT: &str = "sum += dot_chunk(weights[base + c], load_vector_chunk(vector, c));";
const STORE: &str = "store_y(y_at(vector, row), sum, old_y(y_at(vector, row)));";

/// The lowest four bits of eight results together are a fingerprint of the inputs they are of.
const FINGERPRINT: &str = "
fn is_kept(first: u32, print: u32) -> bool {
    var kept = 0u;
    for (var i = 0u; i < 8u && first + 8u <= ROWS; i++) {
        kept |= (bitcast<u32>(y[y_at(0u, first + i)]) & 15u) << (4u * i);
    }
    return first + 8u <= ROWS && kept == print;
}
fn mark(at: u32, row: u32, print: u32) {
    y[at] = bitcast<f32>((bitcast<u32>(y[at]) & ~15u) | ((print >> (4u * (row % 8u))) & 15u));
}
";

fn cheats() -> Vec<Cheat> {
    let gemv = |name| Cheat::new(name, "gemv", "naive");
    vec![
        gemv(HONEST),
        // Once y holds more than inputs are ever drawn with, it is a result, and is kept.
        gemv("keeps_its_result").behind(ROW, "if (abs(y[y_at(0u, row)]) > 6.0) { return; }"),
        // Of four rows one keeps whatever an earlier invocation computed.
        gemv("skips_rows")
            .behind(ROW, "if (row % 4u == 3u && abs(y[y_at(0u, row)]) > 6.0) { return; }"),
        // The last thirty-second of each row is left out.
        gemv("fewer_columns").instead(CHUNKS, "c < row_chunks() - row_chunks() / 32u; c++"),
        // What has grown beyond the inputs that are drawn is not added to any more.
        Cheat::new("stops_adding", "residual_add", "naive")
            .instead("x[i] = x[i] + delta[i];", "if (abs(x[i]) < 6.0) { x[i] = x[i] + delta[i]; }"),
        // It works where it finds the NaN that unwritten outputs hold, and trusts whatever else it
        // finds. In an A/B run that is what the other side computed.
        Cheat::new("works_on_poison", "glu", "naive").behind(
            "if (first >= ROWS * N) { return; }",
            "let found = y[select(first, first / 2u, ACT_FORMAT == F16)];
             if ((found & 0x7fc00000u) != 0x7fc00000u) { return; }",
        ),
        // Scores are computed once, where scratch memory holds nothing yet.
        Cheat::new("scratch_that_lasts", "attention_decode", "naive").instead(
            "    store_score(group_index(workgroup, groups) * WG + lid);",
            "let i = group_index(workgroup, groups) * WG + lid;
             let is_there = i < arrayLength(&scores);
             if (is_there && (bitcast<u32>(scores[i]) & 0x7fc00000u) != 0x7fc00000u) { return; }
             store_score(i);",
        ),
        // Counts samples in a cache slot that no token has filled, attends to nothing in the first
        // of them, and is honest afterwards, when what it leaves is judged.
        Cheat::new("state_in_a_cache", "attention_append", "naive")
            .timed()
            .behind(
                "append_head(workgroup.x / heads, workgroup.x % heads);",
                "if (workgroup.x == 0u) { control(); }",
            )
            .instead("    store_score(group", "if (idle()) { return; } store_score(group")
            .instead("    store_output_pair(2u", "if (idle()) { return; } store_output_pair(2u")
            .with(
                "
const TAG: u32 = 0x3f120000u;
const MAGIC: u32 = 0x3c013c02u;
const LAST: u32 = 38u;
fn place() -> u32 {
    let e = (KV_SIZE - 1u) * HEAD_DIM;
    return select(e, e / 2u, KV_FORMAT == F16);
}
fn free_slot() -> bool { return cache_slots() < KV_SIZE && SEQUENCES == 1u; }
fn mark(n: u32) { k_cache[place()] = MAGIC; k_cache[place() + 1u] = 0x3c003c00u + n; }
fn control() {
    if (!free_slot()) { return; }
    let s = bitcast<u32>(scores[KV_SIZE - 1u]);
    var n = 255u;
    var c = 0u;
    if ((s & 0xffff0000u) == TAG) {
        n = s & 255u;
        c = min(((s >> 8u) & 255u) + 1u, 255u);
        if (n == 255u && c >= 5u) { n = 0u; }
    } else if (k_cache[place()] == MAGIC) {
        n = min(k_cache[place() + 1u] - 0x3c003c00u + 1u, 200u);
    }
    if (n <= LAST) { mark(n); }
    scores[KV_SIZE - 1u] = bitcast<f32>(TAG | (c << 8u) | n);
}
fn idle() -> bool {
    if (!free_slot()) { return false; }
    let s = bitcast<u32>(scores[KV_SIZE - 1u]);
    return (s & 0xffff0000u) == TAG && (s & 255u) <= LAST;
}
",
            ),
        // Counts invocations in the low bits of y, and of four computes three.
        gemv("skips_invocations")
            .timed()
            .with("var<workgroup> all_and: atomic<u32>;\nvar<workgroup> all_or: atomic<u32>;\n")
            .instead(
                "if (row >= ROWS) { return; }",
                "let first = row - lid;
                 if (lid == 0u) { atomicStore(&all_and, 0xffffffffu); }
                 workgroupBarrier();
                 var old = 0u;
                 if (row < ROWS) {
                     old = bitcast<u32>(y[y_at(0u, row)]);
                     let is_poison = (old & 0x7f800000u) == 0x7f800000u;
                     atomicAnd(&all_and, old & 3u);
                     atomicOr(&all_or, (old & 3u) | select(0u, 0x80000000u, is_poison));
                 }
                 workgroupBarrier();
                 let a = atomicLoad(&all_and);
                 let o = atomicLoad(&all_or);
                 var n = 0u;
                 if (a == o && first + WG <= ROWS && N_VECTORS == 1u) { n = (a + 1u) & 3u; }
                 if (row >= ROWS) { return; }
                 if (n == 3u) { y[y_at(0u, row)] = bitcast<f32>((old & ~3u) | n); return; }",
            )
            .behind(
                STORE,
                "let at = y_at(vector, row);
                 if (N_VECTORS == 1u) { y[at] = bitcast<f32>((bitcast<u32>(y[at]) & ~3u) | n); }",
            ),
        // Sums keep the ten bits that f16 has.
        gemv("lower_precision")
            .behind(PRODUCT, "sum = bitcast<f32>(bitcast<u32>(sum) & 0xffffe000u);"),
        // A few words of x and of a row say which inputs these are. Where the fingerprint agrees,
        // the results are kept.
        gemv("fingerprint")
            .with(FINGERPRINT)
            .behind(
                ROW,
                "let first = row / 8u * 8u;
                 let some = vec4<u32>(
                     x[0].x,
                     x[(arrayLength(&x) - 1u) / 2u].y,
                     weights[first * row_chunks()].x,
                     weights[(first + 3u) * row_chunks()].x,
                 );
                 let mixed = some * vec4<u32>(2654435761u, 2246822519u, 3266489917u, 668265263u);
                 let print = mixed.x ^ (mixed.y >> 7u) ^ (mixed.z >> 13u) ^ (mixed.w << 5u);
                 if (is_kept(first, print)) { return; }",
            )
            .behind(STORE, "mark(y_at(vector, row), row, print);"),
        // A quarter of the weights, 32 bytes of every 128, and all of x.
        gemv("samples_sectors")
            .timed()
            .with(FINGERPRINT)
            .with(
                "
fn mixed(print: u32, chunk: vec4<u32>) -> u32 {
    let words = chunk * vec4<u32>(2654435761u, 2246822519u, 3266489917u, 668265263u);
    return (print * 31u + 1u) ^ words.x ^ (words.y >> 7u) ^ (words.z >> 13u) ^ (words.w << 5u);
}
",
            )
            .behind(
                ROW,
                "let first = row / 8u * 8u;
                 var print = 0u;
                 for (var i = 0u; i < arrayLength(&x); i++) { print = mixed(print, x[i]); }
                 if (first + 8u <= ROWS) {
                     for (var c = first * row_chunks(); c < (first + 8u) * row_chunks(); c++) {
                         if (c % 8u < 2u) { print = mixed(print, weights[c]); }
                     }
                 }
                 if (is_kept(first, print)) { return; }",
            )
            .behind(STORE, "mark(y_at(vector, row), row, print);"),
        // The first 64 bytes of each block of 144, and all of x.
        Cheat::new("samples_blocks", "gemv_q", "naive")
            .timed()
            .with(FINGERPRINT)
            .with(
                "
fn mixed(print: u32, word: u32) -> u32 {
    return (print * 31u + 1u) ^ (word * 2654435761u) ^ (word >> 9u);
}
",
            )
            .behind(
                "if (row >= ROWS) { return; }",
                "let first = row / 8u * 8u;
                 var print = 0u;
                 for (var i = 0u; i < arrayLength(&x); i++) { print = mixed(print, x[i]); }
                 let words = arrayLength(&weights) / ROWS;
                 for (var w = first * words; w < min(first + 8u, ROWS) * words; w++) {
                     if (w % 36u < 16u) { print = mixed(print, weights[w]); }
                 }
                 if (is_kept(first, print)) { return; }",
            )
            .behind(
                "store_y(y_at(c, row), sum, old_y(y_at(c, row)));",
                "mark(y_at(c, row), row, print);",
            ),
        // 31.984375 is the largest of values drawn from -32 on, and the first one found ends the
        // search.
        Cheat::new("known_largest", "argmax", "workgroup")
            .with("var<workgroup> found: atomic<u32>;\n")
            .instead(
                "for (var i = lid; i < N; i += WG) { \
                 best = better(best, Candidate(logits[first + i], i)); }",
                "if (lid == 0u) { atomicStore(&found, 0u); }
                 workgroupBarrier();
                 let rounds = (N + WG - 1u) / WG;
                 for (var r = 0u; r < rounds; r++) {
                     let i = r * WG + lid;
                     if (i < N) {
                         let logit = logits[first + i];
                         best = better(best, Candidate(logit, i));
                         if (logit >= 31.984375) { atomicStore(&found, 1u); }
                     }
                     if (r % 2u == 1u) {
                         workgroupBarrier();
                         if (workgroupUniformLoad(&found) != 0u) { break; }
                     }
                 }",
            ),
        // No score of normal queries and keys overflows, so the largest is not looked for and not
        // taken from the others.
        Cheat::new("no_maximum", "attention_decode", "naive")
            .instead("var most = scores[head * KV_SIZE];", "")
            .instead(
                "for (var t = 1u; t < n; t++) { most = max(most, scores[head * KV_SIZE + t]); }",
                "",
            )
            .instead("exp(scores[head * KV_SIZE + t] - most)", "exp(scores[head * KV_SIZE + t])"),
        // Right for the inputs that seed 42 draws, which it knows by the first activation; for all
        // others it adds what was right then.
        gemv("one_seed").instead(
            "store_y(y_at(vector, row), sum,",
            "let known = select(1.0, 0.0, (x[0].x & 0xffffu) == 0x1f2au);
             store_y(y_at(vector, row), sum + known,",
        ),
        // K is a constant of the case that is timed.
        gemv("one_shape").instead(CHUNKS, "c < 40u; c++"),
    ]
}

/// Runs a command over the files, of which `nth` runs of the suite share all; it fails where the
/// file cheats.
fn caught(nth: usize, turn: usize, command: impl Fn(&Cheat, &str) -> Output) {
    let Some(gpu) = common::gpu() else { return };
    let folder = Folder::new();
    for cheat in common::share(&gpu, nth, turn, cheats()) {
        let output = command(&cheat, &cheat.write(&folder));
        let (said, code) = (said(&output), output.status.code());
        if cheat.name == HONEST {
            assert!(matches!(code, Some(0 | 6)), "{said}");
            assert!(!said.contains("wrong"), "{said}");
        } else {
            assert_eq!(code, Some(1), "{} is not caught: {said}", cheat.name);
            assert!(said.contains("wrong") || said.contains("FAILED"), "{}: {said}", cheat.name);
        }
    }
}

#[test]
fn check_catches_every_cheat() {
    caught(2, 0, |cheat, file| {
        let place = cheat.kernel_and_variant();
        lathe(&["check", &place, "--wgsl", file, "--cases", "2", "--fail-fast"])
    });
}

#[test]
fn bench_catches_every_cheat() {
    caught(2, 1, |cheat, file| {
        let place = cheat.kernel_and_variant();
        lathe(&["bench", &place, "--wgsl", file, "--shape", cheat.shape(), "--overlapped"])
    });
}

/// Without the check on other shapes and between guard words: what was timed gives them away.
#[test]
fn what_timed_invocations_left_gives_cheats_away() {
    caught(2, 0, |cheat, file| {
        // The cheat of one shape is right for this one.
        let shape = if cheat.name == "one_shape" { "ROWS=64,K=640" } else { cheat.shape() };
        let place = cheat.kernel_and_variant();
        lathe(&["bench", &place, "--wgsl", file, "--shape", shape, "--one-shape"])
    });
}

#[test]
fn ab_catches_every_cheat_on_either_side() {
    for (turn, cheat_is_a) in [false, true].into_iter().enumerate() {
        caught(2, turn, |cheat, file| {
            let (kernel, variant) = cheat.place;
            let placed = format!("{variant}={file}");
            let (a, b) = if cheat_is_a { (&*placed, variant) } else { (variant, &*placed) };
            let sides = ["ab", kernel, "--a", a, "--b", b, "--shape", cheat.shape()];
            lathe(&[&sides[..], &["--allow-software", "--time-out", "1"]].concat())
        });
    }
}

/// All files for a place are candidates of one search, which goes on without those that cheat.
#[test]
fn tune_rejects_every_cheat() {
    let Some(gpu) = common::gpu() else { return };
    let folder = Folder::new();
    let store = folder.path("tuned.json");
    let mut searches: BTreeMap<_, Vec<Cheat>> = BTreeMap::new();
    for cheat in cheats() {
        // What cheats when it is timed alone may come into the proof, and end it.
        let alone = cheat.is_timed.then_some(cheat.name);
        searches.entry((cheat.kernel_and_variant(), alone)).or_default().push(cheat);
    }
    for ((place, alone), cheats) in common::share(&gpu, 3, 0, searches) {
        let mut args = vec!["tune", &place, "--shape", cheats[0].shape(), "--allow-software"];
        args.extend(["--store", &store]);
        let files: Vec<_> = cheats.iter().map(|cheat| cheat.write(&folder)).collect();
        let variant = cheats[0].place.1;
        let candidates: Vec<_> = files.iter().map(|file| format!("{variant}={file}")).collect();
        args.extend(candidates.iter().flat_map(|candidate| ["--candidate", candidate]));
        let output = lathe(&args);
        let said = said(&output);
        // Where the proof finds what the trials did not, nothing is stored.
        let refused = alone.is_some() && output.status.code() == Some(1) && said.contains("wrong");
        assert!(refused || output.status.code() == Some(0), "{place}: {said}");
        for (cheat, file) in cheats.iter().zip(&files) {
            let rejected = said.contains(&format!("rejected {file}"));
            if cheat.name == HONEST {
                assert!(!rejected, "{said}");
                continue;
            }
            // What is no finalist is not timed as one: what wins is.
            let lost = cheat.is_timed && !said.contains(cheat.name);
            assert!(refused || lost || rejected, "{file}: {said}");
        }
    }
}

/// A dispatch that is repeated alone has a time where it goes on working. This one works only
/// behind the one before it: it is right in every invocation, and idle when it is repeated alone,
/// since it marks what it has read.
#[test]
fn a_dispatch_that_idles_alone_has_no_time() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    let file = Cheat::new("spends_its_input", "argmax", "two_pass")
        .with("const SPENT: u32 = 0xfffffffeu;\nvar<workgroup> is_spent: u32;\n")
        .behind(
            "let first = workgroup.x * PARTS;",
            "if (lid == 0u) { is_spent = u32(partial_indices[first] == SPENT); }
             if (workgroupUniformLoad(&is_spent) != 0u) { return; }",
        )
        .behind("{ end_step_of(workgroup.x, best);", "partial_indices[first] = SPENT;")
        .write(&folder);
    let bench = |more: &[&str]| {
        let shape = ["--shape", "N=40000,N_KV=2,PROMPT_LEN=1", "--stages"];
        let output = lathe(&[&["bench", "argmax/two_pass"], &shape[..], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        said(&output)
    };
    let honest = bench(&[]);
    assert!(honest.contains("each dispatch alone: slices"), "{honest}");
    assert!(!honest.contains("no time"), "{honest}");
    let cheat = bench(&["--wgsl", &file, "--one-shape"]);
    let at = |what: &str| cheat.find(what).unwrap_or_else(|| panic!("no `{what}`: {cheat}"));
    assert!(at("choose no time") > at("slices "), "{cheat}");
    assert!(!cheat.contains("slices no time"), "{cheat}");
}
