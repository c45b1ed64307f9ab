// Unsigned 64-bit integers as (low, high) words.

fn add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn sub64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

// a >= b
fn reaches(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y > b.y || (a.y == b.y && a.x >= b.x);
}

// The product of two words, from their halves.
fn mul64(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return vec2<u32>(
        (other << 16u) | (low & 0xffffu),
        (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u),
    );
}

// a * factor / 2^32, rounded down (up).
fn share64(a: vec2<u32>, factor: u32, up: bool) -> vec2<u32> {
    let low = mul64(a.x, factor);
    let whole = add64(mul64(a.y, factor), vec2<u32>(low.y, 0u));
    return add64(whole, vec2<u32>(select(0u, 1u, up && low.x > 0u), 0u));
}
