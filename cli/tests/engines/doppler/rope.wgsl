override WORKGROUP_SIZE: u32 = 256u;
struct Uniforms {
    seq_len: u32, num_heads: u32, head_dim: u32, start_pos: u32, rope_base: f32, rope_scale: f32,
    rotary_dim: u32, interleaved: u32, pair_span_dim: u32, _pad0: u32, _pad1: u32, _pad2: u32,
}
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read_write> input: array<f32>;
@compute @workgroup_size(WORKGROUP_SIZE, 1, 1)
fn rope_compute_freqs(@builtin(global_invocation_id) id: vec3<u32>) {
    let pairs = u.rotary_dim / 2u;
    let pair = id.x % pairs;
    if (id.x >= u.seq_len * u.num_heads * pairs) { return; }
    let angle = f32(u.start_pos) / u.rope_scale / pow(u.rope_base, f32(pair) / f32(pairs));
    let first = id.x / pairs * u.head_dim + select(pair, pair * 2u, u.interleaved == 1u);
    let second = first + select(u.pair_span_dim / 2u, 1u, u.interleaved == 1u);
    let a = input[first];
    let b = input[second];
    input[first] = a * cos(angle) - b * sin(angle);
    input[second] = a * sin(angle) + b * cos(angle);
}
