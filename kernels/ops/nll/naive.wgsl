// nll/naive: one workgroup a row.
//
//   y[r] = ln(sum_i exp(logits[r][i])) - logits[r][tokens[r]]      nats
//   logits: (ROWS, N)  tokens, y: (ROWS)
//
// Idea: the formula, with the largest logit taken from every exponent so that none overflows. Each
// invocation sums the logits WG apart under the largest of its own; the first joins the sums.
// Source: the log-likelihood that perplexity is the mean of; Jelinek et al., JASA 62 (1977) S63.
// import: grid
override N: u32;
override ROWS: u32;
override WG: u32 = 256u;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

// The answer for a token that no row has: the largest f32.
const IMPOSSIBLE: f32 = 3.40282346638528859812e38;

// Of each invocation's logits the largest, and the sum of their exponentials under it.
var<workgroup> largest_of: array<f32, WG>;
var<workgroup> sum_of: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let r = group_index(workgroup, groups);
    if (r >= ROWS) { return; }
    let first = r * N;
    var largest = -IMPOSSIBLE;
    for (var i = lid; i < N; i += WG) { largest = max(largest, logits[first + i]); }
    var sum = 0.0;
    for (var i = lid; i < N; i += WG) { sum += exp(logits[first + i] - largest); }
    largest_of[lid] = largest;
    sum_of[lid] = sum;
    workgroupBarrier();
    if (lid != 0u) { return; }
    for (var i = 1u; i < min(WG, N); i++) { largest = max(largest, largest_of[i]); }
    sum = 0.0;
    for (var i = 0u; i < min(WG, N); i++) { sum += sum_of[i] * exp(largest_of[i] - largest); }
    let token = tokens[r];
    if (token < N) {
        y[r] = log(sum) + (largest - logits[first + token]);
    } else {
        y[r] = IMPOSSIBLE;
    }
}
