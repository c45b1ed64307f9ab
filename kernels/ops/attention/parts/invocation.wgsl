// An invocation of split decode attention: its index in the workgroup, its subgroup, its lane there.
struct Invocation { index: u32, subgroup: u32, lane: u32 }
