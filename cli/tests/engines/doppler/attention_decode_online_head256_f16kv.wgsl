// with attention_decode
@compute @workgroup_size(256u)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    if (u.head_dim != 256u) { return; }
    attend(wg.x, i);
}
