// Sums for norm/residual by subgroup operations.
// import: reduce/subgroups
struct NormLane { lid: u32, lane: u32, subgroup: u32, subgroups: u32 }

fn sum_all(p: NormLane, value: f32) -> f32 {
    return sum_of_subgroups(p.lane, p.subgroup, p.subgroups, value);
}
