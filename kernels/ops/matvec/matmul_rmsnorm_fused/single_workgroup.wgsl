// matmul_rmsnorm_fused/single_workgroup: the whole matrix on one workgroup; dense weights.
//
//   b = W . x, or (W . x) / rms(W . x) * (WEIGHT_OFFSET + post_weight) with POST_NORM rms
//   stream = stream + b;  with NEXT_NORM rms: y = stream / rms(stream) * (WEIGHT_OFFSET + next_weight)
//   W: (ROWS, K)  x: (K) f32 or f16  stream, weights of the norms: (ROWS)  y: (ROWS) f32 or f16
//   rms(v) = sqrt(mean v^2 + EPS)  WEIGHT_OFFSET 0: standard, 1: Gemma's
//
// Idea: the norm needs all rows, so one workgroup that makes them all needs no second pass. It
// gives up the GPU for that: one of 132 processors works, and a matrix of 16 MB takes 1240 us where
// 4 us of memory traffic are due. Kept to show what a fusion must not cost.
// import: matvec/rows/dense, norm/residual, norm/tree_sums
override ROWS: u32;
override NEXT_NORM: u32;
override N: u32 = ROWS;
override WG: u32 = 256u;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> stream: array<f32>;
@group(0) @binding(3) var<storage, read> post_weight: array<f32>;
@group(0) @binding(4) var<storage, read> next_weight: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<u32>;

var<workgroup> rows: array<f32, ROWS>;

fn delta_at(i: u32) -> f32 { return rows[i]; }

fn stream_at(i: u32) -> f32 { return stream[i]; }

fn set_stream(i: u32, value: f32) { stream[i] = value; }

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) lid: u32) {
    for (var row = lid; row < ROWS; row += WG) {
        let base = row * row_chunks();
        var sum = 0.0;
        for (var c = 0u; c < row_chunks(); c++) {
            sum += dot_chunk(weights[base + c], load_x_chunk(c));
        }
        rows[row] = sum;
    }
    workgroupBarrier();
    residual_norm(NormLane(lid), NEXT_NORM == 1u);
}
