// The stage `norms` after a product in `branch`: one workgroup, sums in a tree.
// entry: product
// import: matvec/epilogue/branch, matvec/epilogue/residual, norm/residual, norm/tree_sums
// requires: override WG: u32
@compute @workgroup_size(WG)
fn norms(@builtin(local_invocation_index) lid: u32) {
    residual_norm(NormLane(lid), NEXT_NORM == NORM_RMS);
}
