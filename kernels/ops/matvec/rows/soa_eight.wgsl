// Quantised rows repacked as a structure of arrays, eight weights (a chunk here) at a time: neighbouring
// lanes read neighbouring words of quants, as they read neighbouring x. K is a multiple of eight.
// import: format/eight, matvec/rows/soa
struct Chunk { codes: vec2<u32>, high: u32, scale: vec4<u32>, at: u32 }

fn row_chunks() -> u32 { return K / 8u; }

// Chunks in sixteen bytes of quants.
fn chunks_in_soa() -> u32 { return soa_chunk_elements() / 8u; }

fn load_chunk(row: u32, c: u32) -> Chunk {
    let base = stream_base(row);
    let at = chunks_in_soa() * stream_chunk(row) + c;
    let soa = at / chunks_in_soa();
    var high = 0u;
    switch WEIGHT {
        case Q5_0, Q5_1, Q5_K: { high = weight_word(base + high_start(), soa); }
        case Q6_K: { high = weight_word(base + high_start(), at / 2u); }
        default: {}
    }
    var codes = vec2<u32>(0u);
    if (WEIGHT == Q8_0) {
        codes = vec2<u32>(weight_word(base, 2u * at), weight_word(base, 2u * at + 1u));
    } else {
        codes.x = weight_word(base, at);
    }
    return Chunk(codes, high, load_soa_scale(base, soa), at);
}

fn weights_of(chunk: Chunk) -> Eight {
    let j = chunk.at % chunks_in_soa();
    let s = soa_scales(chunk.scale, chunk.at / chunks_in_soa());
    if (WEIGHT == Q8_0) {
        let low = word_quants(chunk.codes.x, 0u);
        let high = word_quants(chunk.codes.y, 0u);
        return Eight(s.x * low.low, s.x * high.low);
    }
    var high = chunk.high >> (4u * j);
    if (WEIGHT == Q6_K) { high = chunk.high >> (8u * (j % 2u)); }
    let q = word_quants(chunk.codes.x, high);
    var factor = s.x;
    var summand = -quant_offset() * s.x;
    switch WEIGHT {
        case Q6_K: {
            factor = select(s.x, s.y, j >= 2u);
            summand = 0.0;
        }
        case Q4_0, Q5_0: {}
        default: { summand += s.y; }
    }
    let f = vec4<f32>(factor);
    return Eight(fma(q.low, f, vec4<f32>(summand)), fma(q.high, f, vec4<f32>(summand)));
}
