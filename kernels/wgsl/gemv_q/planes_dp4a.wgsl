// gemv_q/planes_dp4a: 8-bit activations, four products an instruction.
//
//   y[FIRST + r] = sum_k W[r][k] * (d[k / 32] * xq[k])     d = max |x| of 32 / 127, xq = round(x / d)
//   W: (ROWS, K) quantised, in planes  x: (K) f32 or f16
//
// Idea: against 8-bit activations codes stay integers: dot4I8Packed takes four at a time, and x
// meets a chunk with 32 bytes instead of 128. Every workgroup rounds x into its own memory while
// its first weights are on their way. The rounding costs about 5e-3 of the activations' size (an
// NMSE near 3e-5), so this one has a tolerance of its own and runs only when a hint asks for it.
// Source: ggml's q8_1 products (mmvq).
// uses: planes, x_four, sum_four, grid
override FIRST: u32;
override WG: u32 = 256u;
override LANES: u32 = 32u; // a power of two from 4 on
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

override BLOCKS: u32 = (K + 31u) / 32u;
override RUNS: u32 = 2u * BLOCKS;
var<workgroup> xq: array<vec4<u32>, RUNS>; // sixteen codes each
// d, and the sums of d * xq over the block and over its halves. Minimums and zero points take off
// the rounded activations' sum: what remains of the rounding is that of weights, not of codes.
var<workgroup> about: array<vec4<f32>, BLOCKS>;

// Rounds x, four elements a lane, eight neighbouring lanes a block: coalesced, and what they share
// goes through the subgroup, which has at least eight. Four lanes make sixteen codes, of every
// eight neighbours those in the even nibbles of a word of weights, then those in the odd ones;
// q8_0 has them in their own order. `at` counts lanes over the workgroup, subgroup by subgroup.
fn quantise(at: u32) {
    for (var start = 0u; start < 8u * BLOCKS; start += WG) {
        let i = start + at;
        var v = vec4<f32>(0.0);
        if (i < 8u * BLOCKS) { v = x_four(0u, i); }
        let a = abs(v);
        var most = max(max(a.x, a.y), max(a.z, a.w));
        most = max(most, subgroupShuffleXor(most, 1u));
        most = max(most, subgroupShuffleXor(most, 2u));
        most = max(most, subgroupShuffleXor(most, 4u));
        let scale = most / 127.0;
        // Of a block of zeros, or of numbers too small for their inverse, nothing is left.
        let q = vec4<i32>(round(v * select(0.0, 127.0 / most, most > 1e-30)));
        var sum = q.x + q.y + q.z + q.w;
        sum += subgroupShuffleXor(sum, 1u);
        sum += subgroupShuffleXor(sum, 2u);
        let half = scale * f32(sum);
        let other_half = subgroupShuffleXor(half, 4u);

        // This lane's word of the sixteen, made with its neighbour: even lanes keep what lies in
        // even places.
        let even = i % 2u == 0u;
        let codes = vec4<u32>(q) & vec4<u32>(255u);
        let evens = codes.x | (codes.z << 8u);
        let odds = codes.y | (codes.w << 8u);
        let theirs = subgroupShuffleXor(select(evens, odds, even), 1u);
        var word = select(theirs | (odds << 16u), evens | (theirs << 16u), even);
        if (WEIGHT == 3u) { word = pack4xI8(q); }
        let beside = subgroupShuffleXor(word, 1u);
        let pair = select(vec2<u32>(beside, word), vec2<u32>(word, beside), even);
        let next = subgroupShuffleXor(pair, 2u);
        if (i < 8u * BLOCKS && i % 4u == 0u) { xq[i / 4u] = vec4<u32>(pair, next); }
        if (i < 8u * BLOCKS && i % 8u == 0u) {
            about[i / 8u] = vec4<f32>(scale, half + other_half, half, other_half);
        }
    }
}

// The codes of word j of a chunk in bytes: even places, odd places.
fn bytes(chunk: Chunk, j: u32) -> vec2<u32> {
    let w = vec2<u32>(chunk.codes[j], chunk.codes[j] >> 4u) & vec2<u32>(0x0f0f0f0fu);
    switch WEIGHT {
        case 6u, 7u, 9u: {
            let one = chunk.high.x >> (4u * j);
            let h = vec2<u32>(one, one >> 1u);
            return w | ((h & vec2<u32>(0x00010001u)) << vec2<u32>(4u))
                | ((h & vec2<u32>(0x00040004u)) << vec2<u32>(10u));
        }
        case 10u: {
            let one = chunk.high[j / 2u] >> (8u * (j % 2u));
            let h = vec2<u32>(one, one >> 2u);
            return w | ((h & vec2<u32>(0x00030003u)) << vec2<u32>(4u))
                | ((h & vec2<u32>(0x00300030u)) << vec2<u32>(8u));
        }
        default: { return w; }
    }
}

// Products of words j and j + 1 of a chunk with sixteen activations.
fn products(chunk: Chunk, j: u32, v: vec4<u32>) -> i32 {
    let a = bytes(chunk, j);
    let b = bytes(chunk, j + 1u);
    return dot4I8Packed(a.x, v.x) + dot4I8Packed(a.y, v.y)
        + dot4I8Packed(b.x, v.z) + dot4I8Packed(b.y, v.w);
}

fn dot_rounded(chunk: Chunk, c: u32, low: vec4<u32>, high: vec4<u32>, s: vec4<f32>) -> f32 {
    let f = scales(chunk, c);
    if (WEIGHT == 3u) {
        let w = chunk.codes;
        let sum = dot4I8Packed(w.x, low.x) + dot4I8Packed(w.y, low.y)
            + dot4I8Packed(w.z, low.z) + dot4I8Packed(w.w, low.w);
        return f.x * (s.x * f32(sum));
    }
    let first = products(chunk, 0u, low);
    let second = products(chunk, 2u, high);
    if (WEIGHT == 10u) {
        return f.x * (s.x * f32(first) - 32.0 * s.z) + f.y * (s.x * f32(second) - 32.0 * s.w);
    }
    let all = s.x * f32(first + second);
    if (WEIGHT == 4u) { return f.x * (all - 8.0 * s.y); }
    if (WEIGHT == 6u) { return f.x * (all - 16.0 * s.y); }
    return f.x * all + f.y * s.y;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let sg = select(SG, size, SG == 0u);
    let lanes = min(LANES, sg);
    let slot = subgroup * (sg / lanes) + lane / lanes;
    let slots = WG / LANES;
    let row = 4u * (group_index(workgroup, groups) * slots + slot);
    // Rows past the end repeat the last one: loads stay inside, results are dropped.
    let last = ROWS - 1u;
    let base0 = row_base(min(row, last));
    let base1 = row_base(min(row + 1u, last));
    let base2 = row_base(min(row + 2u, last));
    let base3 = row_base(min(row + 3u, last));
    let first0 = row_first(min(row, last));
    let first1 = row_first(min(row + 1u, last));
    let first2 = row_first(min(row + 2u, last));
    let first3 = row_first(min(row + 3u, last));

    let rounds = (row_chunks() + lanes - 1u) / lanes;
    var c = min(lane % lanes, row_chunks() - 1u);
    var w0 = load_chunk(base0, first0 + c);
    var w1 = load_chunk(base1, first1 + c);
    var w2 = load_chunk(base2, first2 + c);
    var w3 = load_chunk(base3, first3 + c);
    quantise(subgroup * sg + lane);
    workgroupBarrier();

    c = lane % lanes;
    var sum = vec4<f32>(0.0);
    for (var round = 1u; round <= rounds; round++) {
        var n0 = w0;
        var n1 = w1;
        var n2 = w2;
        var n3 = w3;
        if (round < rounds) {
            let next = min(c + lanes, row_chunks() - 1u);
            n0 = load_chunk(base0, first0 + next);
            n1 = load_chunk(base1, first1 + next);
            n2 = load_chunk(base2, first2 + next);
            n3 = load_chunk(base3, first3 + next);
        }
        if (c < row_chunks()) {
            // A chunk of q8_0 is half a block of activations.
            let block = select(c, c / 2u, WEIGHT == 3u);
            let low = xq[select(2u * c, c, WEIGHT == 3u)];
            let high = xq[2u * block + 1u];
            let s = about[block];
            sum += vec4<f32>(
                dot_rounded(w0, first0 + c, low, high, s),
                dot_rounded(w1, first1 + c, low, high, s),
                dot_rounded(w2, first2 + c, low, high, s),
                dot_rounded(w3, first3 + c, low, high, s),
            );
        }
        w0 = n0;
        w1 = n1;
        w2 = n2;
        w3 = n3;
        c += lanes;
    }
    let one = sum_four(sum, lane, lanes);
    let mine = row + lane % lanes / (lanes / 4u);
    if (slot < slots && lane % (lanes / 4u) == 0u && mine < ROWS) { y[FIRST + mine] = one; }
}
