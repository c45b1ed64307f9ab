// Sums for norm/residual in a workgroup without subgroups.
// import: reduce/tree
struct NormLane { lid: u32 }

fn sum_all(p: NormLane, value: f32) -> f32 { return workgroup_sum(p.lid, value); }
