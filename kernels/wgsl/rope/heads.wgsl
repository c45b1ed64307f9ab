// Heads of the QKV product, four elements at a time: two pairs that rotate together, chosen so that they
// also fill whole words of an f16 cache. HEAD_DIM is a multiple of 4. norm_pair(query, at) is pair `at`
// of a query's or a key's norm weights.
// requires: override Q_PER_KV, HEAD_DIM, KV_HEADS: u32
// requires: var qkv: array<vec2<f32>>
// requires: var rope: array<vec4<f32>>
// bias_pair(at) is pair `at` of the bias of a token's heads.
// requires: fn bias_pair(at: u32) -> vec2<f32>
// requires: fn norm_pair(query: bool, at: u32) -> vec2<f32>
override QK_NORM: u32;
override QKV_BIAS: u32 = BIAS_NONE;
override ROPE_STYLE: u32;
override EPS: f32;

// Two neighbouring elements twice: with ROPE_STYLE ROPE_INTERLEAVED elements 4i..4i+4, with ROPE_NEOX
// elements 2i, 2i+1 and HEAD_DIM/2 + 2i, HEAD_DIM/2 + 2i + 1.
struct Quad { low: vec2<f32>, high: vec2<f32> }

fn low_at(i: u32) -> u32 { return select(i, 2u * i, ROPE_STYLE == ROPE_INTERLEAVED); }

fn high_at(i: u32) -> u32 { return select(i + HEAD_DIM / 4u, 2u * i + 1u, ROPE_STYLE == ROPE_INTERLEAVED); }

// Queries come first, then keys, then values.
fn is_query(head: u32) -> bool { return head < KV_HEADS * Q_PER_KV; }

fn is_value(head: u32) -> bool { return head >= KV_HEADS * (Q_PER_KV + 1u); }

fn load_quad(head: u32, i: u32) -> Quad {
    let base = head * (HEAD_DIM / 2u);
    if (QKV_BIAS == BIAS_ADDED) {
        let own = head % (KV_HEADS * (Q_PER_KV + 2u)) * (HEAD_DIM / 2u);
        return Quad(
            qkv[base + low_at(i)] + bias_pair(own + low_at(i)),
            qkv[base + high_at(i)] + bias_pair(own + high_at(i)),
        );
    }
    return Quad(qkv[base + low_at(i)], qkv[base + high_at(i)]);
}

fn quad_squares(v: Quad) -> f32 { return dot(v.low, v.low) + dot(v.high, v.high); }

// The weights of a head's norm; ones where it has none.
fn norm_quad(head: u32, i: u32) -> Quad {
    if (QK_NORM == NORM_NONE || is_value(head)) { return Quad(vec2<f32>(1.0), vec2<f32>(1.0)); }
    let query = is_query(head);
    return Quad(norm_pair(query, low_at(i)), norm_pair(query, high_at(i)));
}

// (cos, sin) of the quad's two pairs.
fn rotations(head: u32, i: u32, position: u32) -> vec4<f32> {
    if (is_value(head)) { return vec4<f32>(1.0, 0.0, 1.0, 0.0); }
    return rope[position * (HEAD_DIM / 4u) + i];
}

fn rotated_quad(v: Quad, t: vec4<f32>) -> Quad {
    if (ROPE_STYLE == ROPE_INTERLEAVED) {
        return Quad(
            vec2<f32>(v.low.x * t.x - v.low.y * t.y, v.low.x * t.y + v.low.y * t.x),
            vec2<f32>(v.high.x * t.z - v.high.y * t.w, v.high.x * t.w + v.high.y * t.z),
        );
    }
    let c = t.xz;
    let s = t.yw;
    return Quad(v.low * c - v.high * s, v.low * s + v.high * c);
}
