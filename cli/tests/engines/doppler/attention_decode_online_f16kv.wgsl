// with attention_decode
const WORKGROUP_SIZE = 256u;
@compute @workgroup_size(WORKGROUP_SIZE)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    if (u.head_dim > WORKGROUP_SIZE) { return; }
    attend(wg.x, i);
}
