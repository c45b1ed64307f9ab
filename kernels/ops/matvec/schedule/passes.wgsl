// Vectors in passes. Sums of eight vectors are the most that stay in registers; with more, neighbouring
// workgroups have the same rows and the next vectors, so that weights cross the bus once.
// requires: override N_VECTORS: u32
override PASSES: u32 = (N_VECTORS + 7u) / 8u;
override PASS_VECTORS: u32 = (N_VECTORS + PASSES - 1u) / PASSES;

// First vector of a workgroup, and its place among those of one pass.
fn first_in_pass(group: u32) -> u32 { return group % PASSES * PASS_VECTORS; }
fn group_in_pass(group: u32) -> u32 { return group / PASSES; }

// A vector to load: the last one past the end, where no vector is stored.
fn vector_in_pass(vector: u32) -> u32 {
    if (PASSES == 1u) { return vector; }
    return min(vector, N_VECTORS - 1u);
}
