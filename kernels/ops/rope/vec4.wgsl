// rope/vec4: one invocation four pairs; HEAD_DIM a multiple of 8, STRIDE of 4.
//
// Idea: all memory in sixteen bytes. Interleaved pairs come apart in registers; NeoX pairs are
// four neighbours of each half.
// import: grid
override WG: u32 = 64u;

@group(0) @binding(1) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> rope: array<vec4<f32>>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let each = HEAD_DIM / 8u;
    let at = group_index(workgroup, groups) * WG + lid;
    if (at >= HEADS * each) { return; }
    let four = at % each;
    let base = at / each * (max(STRIDE, HEAD_DIM) / 4u);
    let i = base + select(2u * four, four, ROPE_STYLE == ROPE_NEOX);
    let j = select(i + 1u, i + each, ROPE_STYLE == ROPE_NEOX);
    let u = x[i];
    let v = x[j];
    let turns = state[POSITION] * (HEAD_DIM / 4u) + 2u * four;
    let t = rope[turns];
    let s = rope[turns + 1u];
    let cosine = vec4<f32>(t.xz, s.xz);
    let sine = vec4<f32>(t.yw, s.yw);
    if (ROPE_STYLE == ROPE_NEOX) {
        x[i] = u * cosine - v * sine;
        x[j] = u * sine + v * cosine;
        return;
    }
    let a = vec4<f32>(u.xz, v.xz);
    let b = vec4<f32>(u.yw, v.yw);
    let c = a * cosine - b * sine;
    let d = a * sine + b * cosine;
    x[i] = vec4<f32>(c.x, d.x, c.y, d.y);
    x[j] = vec4<f32>(c.z, d.z, c.w, d.w);
}
