// Floats as integers of the same order. No float's key is 0.

// Without NaN (least of all here), subnormals and -0.
fn canonical(v: f32) -> f32 {
    let bits = bitcast<u32>(v);
    if ((bits & 0x7f800000u) == 0u) { return 0.0; }
    if ((bits & 0x7fffffffu) > 0x7f800000u) { return bitcast<f32>(0xff800000u | (bits & 0u)); }
    return v;
}

fn sort_key(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

fn value_of(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, (key >> 31u) == 1u));
}
