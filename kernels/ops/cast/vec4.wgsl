// cast/vec4: one invocation sixteen bytes of y; N a multiple of 8.
//
// Idea: neighbouring lanes store neighbouring sixteen bytes, whichever side is the wider. Widening
// reads half of a sixteen-byte chunk, narrowing two chunks.
// import: format/floats, grid
override WG: u32 = 256u;
override EACH: u32 = select(8u, 4u, TO == F32); // values in sixteen bytes of y

@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<u32>>;

fn narrow_four(bits: vec4<u32>) -> vec2<u32> {
    return vec2<u32>(narrow(bits.xy), narrow(bits.zw));
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = group_index(workgroup, groups) * WG + lid;
    if (i >= N / EACH) { return; }
    if (FROM == TO) {
        y[i] = x[i];
    } else if (TO == F32) {
        let chunk = x[i / 2u];
        let words = select(chunk.xy, chunk.zw, i % 2u == 1u);
        y[i] = vec4<u32>(widen(words.x), widen(words.y));
    } else if (FROM == F32) {
        y[i] = vec4<u32>(narrow_four(x[2u * i]), narrow_four(x[2u * i + 1u]));
    } else {
        let chunk = x[i];
        y[i] = vec4<u32>(
            narrow(widen(chunk.x)),
            narrow(widen(chunk.y)),
            narrow(widen(chunk.z)),
            narrow(widen(chunk.w)),
        );
    }
}
