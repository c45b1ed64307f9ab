// Sums for prologue/joined by subgroup operations.
// import: reduce/subgroups
// requires: override WG: u32
fn whole_sum(at: u32, size: u32, value: f32) -> f32 {
    return sum_of_subgroups(at % size, at / size, WG / size, value);
}
