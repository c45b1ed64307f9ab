// Rules of WGSL that an interpreter may get wrong, an entry point for each.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
var<workgroup> cells: array<u32, 64>;
var<workgroup> counts: array<atomic<u32>, 4>;

// Each stores four words, so that nothing that it left is read.
fn put(lid: u32, v: vec4<u32>) { for (var i = 0u; i < 4u; i++) { y[4u * lid + i] = v[i]; } }

// The right operand of && and || is evaluated where the left one does not decide.
fn counted(n: ptr<function, u32>, v: bool) -> bool { *n += 1u; return v; }
@compute @workgroup_size(64)
fn rule_short_circuit(@builtin(local_invocation_index) lid: u32) {
    var n = 0u; var m = 0u;
    let both = x[lid] > 9u && counted(&n, x[lid] > 20u);
    let one = x[lid] > 9u || counted(&m, x[lid] > 4u);
    put(lid, vec4(n, m, u32(both), u32(one)));
}

// A switch takes the case of its selector or the default, wherever that stands; break leaves the switch, continue the loop.
@compute @workgroup_size(64)
fn rule_switch(@builtin(local_invocation_index) lid: u32) {
    var r = vec4<u32>();
    for (var i = 0u; i < 6u; i++) {
        switch ((x[lid] + i) % 8u) {
            case 1u, 3u: { r.x += 1u; }
            default: { r.y += i; if (i == 2u) { break; } r.y += 10u; }
            case 5u: { r.z += 1u; if (lid % 3u == 0u) { continue; } r.z += 100u; }
            case 6u: { if (lid % 5u == 0u) { r.w = 77u; put(lid, r); return; } }
        }
        r.w += 1u;
    }
    put(lid, r);
}

// continuing runs after continue and not after break; break if ends the loop behind it.
@compute @workgroup_size(64)
fn rule_continuing(@builtin(local_invocation_index) lid: u32) {
    var i = 0u; var a = 0u; var b = 0u;
    loop {
        let odd = (x[lid] + i) % 2u == 1u;
        if (i > x[lid]) { break; }
        if (odd) { a += i; continue; }
        b += 1u;
        continuing { let before = i; i += 1u; a += 100u * u32(odd); break if before == 11u; }
    }
    var k = 0u;
    while (true) { k++; for (var j = 0u; ; j++) { if (j == k) { break; } if (j + lid > 70u) { continue; } if (j > 3u) { break; } } if (k > 5u) { break; } }
    put(lid, vec4(i, a, b, k));
}

// Integers wrap; signed division rounds to zero, and its remainder has the dividend's sign.
@compute @workgroup_size(64)
fn rule_integers(@builtin(local_invocation_index) lid: u32) {
    let a = i32(x[lid]) - 16; let b = i32(x[63u - lid] % 7u) - 8;
    let most = 0x7fffffff;
    put(lid, vec4(u32(a / b), u32(a % b), u32(most + a * most), bitcast<u32>(-b * 0x10001) >> (x[lid] % 32u)));
}

// Values are copied: of arrays and structures too. A pointer refers to the variable.
struct Pair { at: vec2<u32>, items: array<u32, 3> }
fn bump(p: ptr<function, Pair>, i: u32) -> u32 { (*p).items[i % 3u] += 5u; (*p).at.y ^= 3u; return (*p).items[0]; }
fn twice(v: ptr<function, u32>) { *v *= 2u; }
@compute @workgroup_size(64)
fn rule_copies(@builtin(local_invocation_index) lid: u32) {
    var p = Pair(vec2(x[lid], 1u), array<u32, 3>(lid, 2u, 3u));
    let before = p;
    var other = p;
    let r = bump(&p, lid);
    other.items = before.items; other.items[1] += p.items[1];
    var all = array<Pair, 2>(p, other);
    all[lid % 2u].at.x += 9u;
    all[1].items[lid % 3u]++;
    var third = p.items[2]; twice(&third); p.items[2] = third;
    put(lid, vec4(r + before.items[0], all[0].at.x + p.items[2], all[1].items[2] + before.at.y, other.items[1] + all[1].at.y));
}

// A name hides the outer one until its block ends; variables begin anew in each round.
@compute @workgroup_size(64)
fn rule_scopes(@builtin(local_invocation_index) lid: u32) {
    var a = x[lid]; var s = 0u; var t = 0u;
    for (var i = 0u; i < 4u; i++) {
        var fresh: u32;
        { let a = i * 3u; fresh += a; var s = 5u; s += a; t += s; }
        s += fresh; a += 1u;
    }
    put(lid, vec4(a, s, t, 0u));
}

// Compound assignment and components of vectors and matrices, by known and by computed indices.
@compute @workgroup_size(64)
fn rule_parts(@builtin(local_invocation_index) lid: u32) {
    var v = vec4<f32>(1.0, 2.0, 3.0, f32(x[lid]));
    v[lid % 4u] += 10.0; v.z -= v.x; v = v.wzyx;
    var m = mat3x2<f32>(1.0, 2.0, 3.0, 4.0, 5.0, 6.0);
    m[lid % 3u][1] = v.y; m[2] = m[0].yx; m *= 2.0;
    let flat = m * vec3(1.0, 2.0, 3.0);
    put(lid, vec4(bitcast<u32>(v.x + v.z), bitcast<u32>(v.w), bitcast<u32>(flat.x), bitcast<u32>(flat.y)));
}

// Lanes that return early leave the others alone; barriers order the cells.
fn first_above(limit: u32, lid: u32) -> u32 {
    for (var i = 0u; i < 64u; i++) { if (cells[(i + lid) % 64u] > limit) { return i; } }
    return 99u;
}
@compute @workgroup_size(64)
fn rule_returns(@builtin(local_invocation_index) lid: u32) {
    cells[lid] = x[lid];
    workgroupBarrier();
    let a = first_above(25u, lid); let b = first_above(40u, lid);
    workgroupBarrier();
    cells[63u - lid] = a;
    workgroupBarrier();
    put(lid, vec4(a, b, cells[lid], 1u));
}

// Atomics return what was there before, in some order: these results do not depend on it.
@compute @workgroup_size(64)
fn rule_atomics(@builtin(local_invocation_index) lid: u32) {
    if (lid < 4u) { atomicStore(&counts[lid], select(0u, 100u, lid == 2u)); }
    workgroupBarrier();
    let seen = atomicAdd(&counts[0], 1u);
    atomicMax(&counts[1], x[lid]);
    atomicMin(&counts[2], x[lid]);
    let swapped = atomicCompareExchangeWeak(&counts[3], lid + 1u, 7u);
    workgroupBarrier();
    let sum = atomicLoad(&counts[0]);
    put(lid, vec4(sum + u32(seen < 64u), atomicLoad(&counts[1]), atomicLoad(&counts[2]), u32(swapped.exchanged) + swapped.old_value));
}

// Constant expressions, conversions between types, and bits of one as another.
const TABLE = array<u32, 4>(3u, 1u + 4u, 1u << 5u, u32(2.9));
@compute @workgroup_size(64)
fn rule_constants(@builtin(local_invocation_index) lid: u32) {
    let f = f32(i32(x[lid]) - 12) * 0.75;
    put(lid, vec4(TABLE[lid % 4u], u32(i32(f)), bitcast<u32>(vec2<f32>(f).y), u32(f > 2.0) + u32(bool(x[lid] & 4u))));
}
