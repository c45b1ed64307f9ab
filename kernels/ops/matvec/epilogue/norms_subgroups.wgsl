// The stage `norms` after a product in `branch`: one workgroup, sums by subgroup operations.
// entry: product
// import: matvec/epilogue/branch, matvec/epilogue/residual, norm/residual, norm/subgroup_sums
// requires: override WG: u32
@compute @workgroup_size(WG)
fn norms(
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    residual_norm(NormLane(lid, lane, subgroup, subgroups), NEXT_NORM == NORM_RMS);
}
