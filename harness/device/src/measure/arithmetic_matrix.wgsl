// Products of 16 x 16 fragments of f16 with f32 sums: eight sums side by side in a subgroup, each of the
// identity with itself, so that the diagonal counts the products.
enable f16;
enable wgpu_cooperative_matrix;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;

override WG: u32 = 256u;
override STEPS: u32 = 1024u;

alias FragmentA = coop_mat16x16<f16, A>;
alias FragmentB = coop_mat16x16<f16, B>;
alias FragmentC = coop_mat16x16<f32, C>;

var<workgroup> identity: array<f16, 256>;
var<workgroup> zeros: array<f32, 256>;

@compute @workgroup_size(WG)
fn multiply_matrices(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    for (var i = lid; i < 256u; i += WG) {
        identity[i] = select(0.0h, 1.0h, i / 16u == i % 16u);
        zeros[i] = 0.0;
    }
    workgroupBarrier();
    let a = coopLoad<FragmentA>(&identity[0], 16u);
    let b = coopLoad<FragmentB>(&identity[0], 16u);
    var c0 = coopLoad<FragmentC>(&zeros[0], 16u);
    var c1 = c0;
    var c2 = c0;
    var c3 = c0;
    for (var step = 0u; step < STEPS; step++) {
        c0 = coopMultiplyAdd(a, b, c0);
        c1 = coopMultiplyAdd(a, b, c1);
        c2 = coopMultiplyAdd(a, b, c2);
        c3 = coopMultiplyAdd(a, b, c3);
    }
    // All subgroups of a workgroup write the same.
    workgroupBarrier();
    coopStore(c0, &zeros[0], 16u);
    workgroupBarrier();
    var sum = zeros[17u * (lid % 16u)];
    workgroupBarrier();
    coopStore(c1, &zeros[0], 16u);
    workgroupBarrier();
    sum += zeros[17u * (lid % 16u)];
    workgroupBarrier();
    coopStore(c2, &zeros[0], 16u);
    workgroupBarrier();
    sum += zeros[17u * (lid % 16u)];
    workgroupBarrier();
    coopStore(c3, &zeros[0], 16u);
    workgroupBarrier();
    sum += zeros[17u * (lid % 16u)];
    out[workgroup.x * WG + lid] = sum / f32(4u * STEPS);
}
