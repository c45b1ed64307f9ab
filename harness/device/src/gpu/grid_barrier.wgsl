// Whether workgroups can wait for each other: each leaves a word, waits, and reads those of two others, again
// and again. What they wait with is src/persistent.rs's and comes before this.
@group(0) @binding(0) @coherent var<storage, read_write> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> grid_arrivals: array<atomic<u32>>;
// Words that were not what a workgroup had left.
@group(0) @binding(2) var<storage, read_write> wrong: array<atomic<u32>>;

@compute @workgroup_size(INVOCATIONS)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    grid_lid = lid;
    let group = workgroup.x;
    for (var round = 0u; round < ROUNDS; round++) {
        let mine = group * INVOCATIONS + lid;
        words[mine] = 31u * mine + round;
        grid_arrive(32u);
        grid_await(32u);
        let near = (group + 1u) % GRID_GROUPS * INVOCATIONS + lid;
        let far = (group + GRID_GROUPS / 2u) % GRID_GROUPS * INVOCATIONS + lid;
        if (words[near] != 31u * near + round || words[far] != 31u * far + round) {
            atomicAdd(&wrong[0], 1u);
        }
        // Nobody writes the next words before everybody has read these.
        grid_arrive(64u);
        grid_await(64u);
    }
}
