// y = cap * tanh(x / cap): logits and attention scores are kept within ±cap, as in Gemma 2.
//   x, y: (N)   CAP: the bound, in the unit of x

override N: u32;
override CAP: f32;
override WG: u32 = 64;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if (i < N) {
        y[i] = CAP * tanh(x[i] / CAP);
    }
}
