// width 8, grid 5, zeros arrived 4, out a 40, out b 40
// Workgroups wait for each other three times, and read what others wrote.
@group(0) @binding(0) var<storage, read_write> arrived: array<atomic<u32>>;
@group(0) @binding(1) @coherent var<storage, read_write> a: array<u32>;
@group(0) @binding(2) @coherent var<storage, read_write> b: array<u32>;
fn wait(n: u32, lid: u32) {
    storageBarrier();
    if (lid == 0u) {
        atomicAdd(&arrived[n], 1u);
        // Few polls, while another one computes for long.
        for (var polls = 0u; atomicLoad(&arrived[n]) != 5u; polls++) {
            if (polls > 10000u) { a[100] = 0u; }
        }
    }
    workgroupBarrier();
}
@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let i = 8u * group.x + lid;
    var spent = i;
    if (group.x == 3u) { for (var round = 0u; round < 4000u; round++) { spent = spent * 5u % 64u; } }
    a[i] = i + spent / 64u;
    wait(0u, lid);
    b[i] = a[(i + 9u) % 40u] + a[39u - i];
    wait(1u, lid);
    a[i] = b[39u - i];
    wait(2u, lid);
    b[i] = a[(i * 7u) % 40u];
}
