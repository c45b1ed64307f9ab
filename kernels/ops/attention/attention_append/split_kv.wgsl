// attention_append/split_kv: attention_decode/split_kv whose workgroups make the new token's heads.
//
// Idea: every workgroup norms and rotates its queries, HEADS of a KV head, while its first keys are on
// their way; those that have the new token's slot make key and value too and use them from workgroup
// memory, and the one with the first queries stores them. That costs a barrier, and saves a dispatch and
// its wait.
// Source: own; Flash-Decoding (Dao et al., 2023) and online softmax (arXiv 1805.02867) as there.
// import: attention/parts/new_token, attention/parts/new_token_subgroup, attention/parts/split
// import: attention/parts/split_attend, attention/parts/split_combine, format/store_four
override SPLITS: u32 = 16u;

@group(0) @binding(6) var<storage, read_write> tops: array<vec2<f32>>;
@group(0) @binding(7) var<storage, read_write> partials: array<vec4<f32>>;

fn store_top(i: u32, top: vec2<f32>) { tops[i] = top; }

fn store_sum(i: u32, sum: vec4<f32>, norm: f32) { partials[i] = sum; }

// Four values of the output, without a second stage: in a run whoever reads them combines the splits itself
// (Variant::inlined).
fn combined_four(i: u32) -> vec4<f32> {
    let row = i / (HEAD_DIM / 4u);
    let all = share_of_splits(row, i % (HEAD_DIM / 4u), 0u, 1u, splits_to_combine(row));
    return all.sum / all.top.y;
}

// Sixteen bytes of the output.
fn combined_chunk(i: u32) -> vec4<u32> {
    if (ACT_FORMAT == F32) { return bitcast<vec4<u32>>(combined_four(i)); }
    // Of an odd number of fours the last chunk has one.
    let last = combined_rows() * (HEAD_DIM / 4u) - 1u;
    let low = combined_four(2u * i);
    let high = combined_four(min(2u * i + 1u, last));
    return vec4<u32>(
        pack2x16float(low.xy), pack2x16float(low.zw), pack2x16float(high.xy), pack2x16float(high.zw),
    );
}
