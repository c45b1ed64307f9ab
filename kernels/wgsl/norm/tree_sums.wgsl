// For residual_norm in a workgroup without subgroups. Needs reduce_workgroup.
// import: reduce/tree
struct NormLane { lid: u32 }

fn sum_all(p: NormLane, value: f32) -> f32 { return workgroup_sum(p.lid, value); }
