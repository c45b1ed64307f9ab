// Sums for prologue/joined in workgroup memory.
// import: reduce/tree
fn whole_sum(at: u32, size: u32, value: f32) -> f32 { return workgroup_sum(at, value); }
