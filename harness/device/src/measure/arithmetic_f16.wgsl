// The same chains of multiply-adds in f16.
enable f16;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;

override WG: u32 = 256u;
override STEPS: u32 = 1024u;

@compute @workgroup_size(WG)
fn multiply_add_f16(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = workgroup.x * WG + lid;
    var a = vec4<f16>(f16(f32(i & 7u)));
    var b = a + 1.0h;
    var c = a + 2.0h;
    var d = a + 3.0h;
    let keep = vec4<f16>(0.875h);
    let add = vec4<f16>(0.125h);
    for (var step = 0u; step < STEPS; step++) {
        a = fma(a, keep, add);
        b = fma(b, keep, add);
        c = fma(c, keep, add);
        d = fma(d, keep, add);
        a = fma(a, keep, add);
        b = fma(b, keep, add);
        c = fma(c, keep, add);
        d = fma(d, keep, add);
    }
    let all = vec4<f32>(a) + vec4<f32>(b) + vec4<f32>(c) + vec4<f32>(d);
    out[i] = (all.x + all.y + all.z + all.w) / 16.0;
}
