// Four elements of a head at a time: two pairs that turn together, chosen so that they also fill
// whole words of an f16 cache. HEAD_DIM is a multiple of 4. The file that uses it declares the
// buffers: qkv and q as array<vec2<f32>>, rope as array<vec4<f32>>, caches as array<u32>.
override GROUP: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32;
override NORM: u32;
override STYLE: u32;
override EPS: f32;
override CAPACITY: u32;
override KV: u32;

// Two neighbouring elements twice: with STYLE 0 elements 4i..4i+4, with STYLE 1 elements 2i, 2i+1
// and HEAD_DIM/2 + 2i, HEAD_DIM/2 + 2i + 1.
struct Quad { low: vec2<f32>, high: vec2<f32> }

fn low_at(i: u32) -> u32 { return select(i, 2u * i, STYLE == 0u); }

fn high_at(i: u32) -> u32 { return select(i + HEAD_DIM / 4u, 2u * i + 1u, STYLE == 0u); }

// Queries come first, then keys, then values.
fn is_query(head: u32) -> bool { return head < KV_HEADS * GROUP; }

fn is_value(head: u32) -> bool { return head >= KV_HEADS * (GROUP + 1u); }

fn load_quad(head: u32, i: u32) -> Quad {
    let base = head * (HEAD_DIM / 2u);
    return Quad(qkv[base + low_at(i)], qkv[base + high_at(i)]);
}

fn squares(v: Quad) -> f32 { return dot(v.low, v.low) + dot(v.high, v.high); }

// The weights of a head's norm; ones where it has none.
fn norm_quad(head: u32, i: u32) -> Quad {
    if (NORM == 0u || is_value(head)) { return Quad(vec2<f32>(1.0), vec2<f32>(1.0)); }
    if (is_query(head)) { return Quad(q_norm[low_at(i)], q_norm[high_at(i)]); }
    return Quad(k_norm[low_at(i)], k_norm[high_at(i)]);
}

// (cos, sin) of the quad's two pairs.
fn turns(head: u32, i: u32, position: u32) -> vec4<f32> {
    if (is_value(head)) { return vec4<f32>(1.0, 0.0, 1.0, 0.0); }
    return rope[position * (HEAD_DIM / 4u) + i];
}

fn turned(v: Quad, t: vec4<f32>) -> Quad {
    if (STYLE == 0u) {
        return Quad(
            vec2<f32>(v.low.x * t.x - v.low.y * t.y, v.low.x * t.y + v.low.y * t.x),
            vec2<f32>(v.high.x * t.z - v.high.y * t.w, v.high.x * t.w + v.high.y * t.z),
        );
    }
    let c = t.xz;
    let s = t.yw;
    return Quad(v.low * c - v.high * s, v.low * s + v.high * c);
}

// Scales, norms and turns a quad and puts it where it belongs.
fn place(head: u32, i: u32, v: Quad, scale: f32, w: Quad, t: vec4<f32>, position: u32) {
    if (is_value(head)) {
        append(head - KV_HEADS * (GROUP + 1u), i, v, position, true);
        return;
    }
    let out = turned(Quad(v.low * scale * w.low, v.high * scale * w.high), t);
    if (is_query(head)) {
        let base = head * (HEAD_DIM / 2u);
        q[base + low_at(i)] = out.low;
        q[base + high_at(i)] = out.high;
        return;
    }
    append(head - KV_HEADS * GROUP, i, out, position, false);
}

// A full cache and a ring are the same: the slot is the position modulo the capacity.
fn append(head: u32, i: u32, v: Quad, position: u32, value: bool) {
    let base = (head * CAPACITY + position % CAPACITY) * (HEAD_DIM / 2u);
    put(base + low_at(i), v.low, value);
    put(base + high_at(i), v.high, value);
}

// Two neighbours of a cache, `at` counting pairs.
fn put(at: u32, v: vec2<f32>, value: bool) {
    if (KV == 1u) {
        if (value) { v_cache[at] = pack2x16float(v); } else { k_cache[at] = pack2x16float(v); }
        return;
    }
    if (value) {
        v_cache[2u * at] = bitcast<u32>(v.x);
        v_cache[2u * at + 1u] = bitcast<u32>(v.y);
    } else {
        k_cache[2u * at] = bitcast<u32>(v.x);
        k_cache[2u * at + 1u] = bitcast<u32>(v.y);
    }
}
