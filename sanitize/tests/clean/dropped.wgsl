// width 8, in x 8, out y 8
// Values that nothing defines, and that nothing uses: a shift by 32, a division by zero, a slot that was not
// written, one that another invocation writes.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
var<workgroup> slots: array<u32, 16>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) {
    let by = 8u * (lid % 4u);
    let joined = select(x[lid] >> by | x[7u - lid] << (32u - by), x[lid], by == 0u);
    let share = select(joined / x[lid], 0u, x[lid] == 0u);
    let before = slots[lid ^ 8u];
    let raced = slots[lid ^ 1u];
    slots[lid] = share;
    workgroupBarrier();
    let at_once = slots[(lid + 1u) % 8u];
    y[lid] = select(before, at_once, lid < 8u) + select(0u, raced, lid > 8u);
}
