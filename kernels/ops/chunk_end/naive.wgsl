// chunk_end/naive: one workgroup copies a row.
//
//   count = clamp(prompt - position, 1, N_TOKENS)        tokens of the prompt in this chunk
//   y[i] = x[count - 1][i]                               x: (N_TOKENS, N)  y: (N), each f32 or f16
//   position += count, but count - 1 where the prompt ends: the head's step adds the last one
//
// Idea: only the last token of a prompt needs the head. Its row goes where a decode step has its own, so that
// the head and the choice are a decode step's.
// import: format/store_pair
override N: u32;
override N_TOKENS: u32;
override X_FORMAT: u32;
override ACT_FORMAT: u32;
override WG: u32 = 256u;

@group(0) @binding(0) var<storage, read_write> state: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

fn row_element(i: u32) -> f32 {
    if (X_FORMAT == F32) { return bitcast<f32>(x[i]); }
    return unpack2x16float(x[i / 2u])[i % 2u];
}

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) lid: u32) {
    let position = state[POSITION];
    let left = max(state[PROMPT_LEN], position) - position;
    let count = clamp(left, 1u, N_TOKENS);
    for (var i = 2u * lid; i < N; i += 2u * WG) {
        let at = (count - 1u) * N + i;
        let both = i + 1u < N;
        var v = vec2<f32>(row_element(at), 0.0);
        if (both) { v.y = row_element(at + 1u); }
        store_pair(i, v, both);
    }
    storageBarrier();
    workgroupBarrier();
    if (lid == 0u) { state[POSITION] = position + count - select(0u, 1u, left <= N_TOKENS); }
}
