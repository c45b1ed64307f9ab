// A workgroup of a prefill takes all keys of its rows, and what it has in the end is the result.
// import: attention/parts/prefill_rows, format/store_four
fn splits() -> u32 { return 1u; }

fn split_keys(keys: vec2<u32>, split: u32) -> vec2<u32> { return keys; }

fn sum_factor(keys: vec2<u32>, norm: f32) -> f32 { return 1.0 / norm; }

fn keep_top(keys: vec2<u32>, kv_head: u32, row: u32, split: u32, top: vec2<f32>) {}

fn keep_four(keys: vec2<u32>, kv_head: u32, row: u32, split: u32, four: u32, value: vec4<f32>) {
    store_four(prefill_output(kv_head, row) + four, value);
}
