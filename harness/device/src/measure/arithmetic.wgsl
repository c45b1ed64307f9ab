// Ceilings of arithmetic on vectors: chains of multiply-adds, eight of them side by side in an invocation,
// so that none waits. Their value tends to 1 whatever it starts from, which the host checks. It
// replaces the alias to measure f16.
alias Float = f32;

@group(0) @binding(0) var<storage, read_write> out: array<f32>;

override WG: u32 = 256u;
override STEPS: u32 = 1024u;

@compute @workgroup_size(WG)
fn multiply_add(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = workgroup.x * WG + lid;
    var a = vec4<Float>(Float(i & 7u));
    var b = a + 1.0;
    var c = a + 2.0;
    var d = a + 3.0;
    let keep = vec4<Float>(0.875);
    let add = vec4<Float>(0.125);
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

// One workgroup, one chain: its time is a number of cycles, so it tells the clock.
@compute @workgroup_size(1)
fn clock() {
    var a = out[0];
    for (var step = 0u; step < STEPS; step++) {
        a = fma(a, 0.9921875, 0.0078125);
    }
    out[0] = a;
}

// Sums of four products of 8-bit integers each; the host knows what they come to.
@compute @workgroup_size(WG)
fn multiply_bytes(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = workgroup.x * WG + lid;
    // One in each byte; not a constant, or the products would be.
    let ones = 0x01010101u * u32(out[i] >= 0.0);
    var w = array<u32, 8>();
    for (var j = 0u; j < 8u; j++) { w[j] = ones * (j + 1u); }
    var sums = vec4<i32>();
    var more = vec4<i32>();
    for (var step = 0u; step < STEPS; step++) {
        let v = ones + (step & 1u);
        sums.x += dot4I8Packed(w[0], v);
        sums.y += dot4I8Packed(w[1], v);
        sums.z += dot4I8Packed(w[2], v);
        sums.w += dot4I8Packed(w[3], v);
        more.x += dot4I8Packed(w[4], v);
        more.y += dot4I8Packed(w[5], v);
        more.z += dot4I8Packed(w[6], v);
        more.w += dot4I8Packed(w[7], v);
    }
    let all = sums + more;
    // 1 + 2 + … + 8 = 36, four times a step, and once more in every other step.
    let expected = i32(STEPS) * 36 * 4 + i32(STEPS) / 2 * 36;
    out[i] = f32(all.x + all.y + all.z + all.w) / f32(expected);
}
