// width 8, grid 3, zeros flag 1, out y 3
// Nobody sets the flag to three.
@group(0) @binding(0) var<storage, read_write> flag: atomic<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    atomicMax(&flag, group.x);
    loop {
        if (atomicLoad(&flag) >= 3u) { break; } // <- no_progress
    }
    y[group.x] = 1u;
}
