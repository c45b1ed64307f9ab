// For split decode attention over caches that hold the new token already.
// import: attention/parts/invocation, attention/parts/split
// requires: var q: array<vec4<f32>>
const APPENDS: bool = false;

fn ready(part: SplitPart, at: Invocation, size: u32) -> bool { return true; }

// Elements 4 four.. of query h.
fn query_four(part: SplitPart, h: u32, four: u32) -> vec4<f32> {
    return q[(part.kv_head * Q_PER_KV + part.first + h) * (HEAD_DIM / 4u) + four];
}

fn new_slot() -> u32 { return KV_SIZE; }

fn new_chunk(row: u32, c: u32) -> vec4<u32> { return vec4<u32>(0u); }
