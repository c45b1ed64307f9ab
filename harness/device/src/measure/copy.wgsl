// Ceilings of memory. A block is filled with a hash of each word's place, which no compression makes
// smaller; copies are compared with it, and what was read is compared by its sums. A round reads sixteen
// bytes an invocation.
@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> target_: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> wrong: atomic<u32>;

override WG: u32 = 256u;
override ROUNDS: u32 = 4u;

// A hash of 32 bits: two rounds of multiply and shift.
fn hash(word: u32) -> u32 {
    var h = word * 0x9e3779b1u;
    h = (h ^ (h >> 15u)) * 0x85ebca77u;
    return h ^ (h >> 13u);
}

fn random_content(i: u32) -> vec4<u32> {
    return vec4<u32>(hash(4u * i), hash(4u * i + 1u), hash(4u * i + 2u), hash(4u * i + 3u));
}

fn first_of(workgroup: vec3<u32>, groups: vec3<u32>) -> u32 {
    return (workgroup.y * groups.x + workgroup.x) * WG * ROUNDS;
}

@compute @workgroup_size(WG)
fn fill_block(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    for (var r = 0u; r < ROUNDS; r++) {
        let i = first_of(workgroup, groups) + r * WG + lid;
        if (i < arrayLength(&target_)) { target_[i] = random_content(i); }
    }
}

@compute @workgroup_size(WG)
fn copy_block(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    for (var r = 0u; r < ROUNDS; r++) {
        let i = first_of(workgroup, groups) + r * WG + lid;
        if (i < arrayLength(&target_)) { target_[i] = source[i]; }
    }
}

// A workgroup writes the sum of what it read: little beside that, and no compiler may leave a load out.
var<workgroup> sums: array<vec4<u32>, WG>;

fn sum_of(lid: u32, own: vec4<u32>) -> vec4<u32> {
    sums[lid] = own;
    workgroupBarrier();
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        if (lid < half) { sums[lid] += sums[lid + half]; }
        workgroupBarrier();
    }
    return sums[0];
}

@compute @workgroup_size(WG)
fn read_block(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let n = arrayLength(&source);
    var all = vec4<u32>();
    // Four loads on their way together.
    for (var r = 0u; r < ROUNDS; r += 4u) {
        let i = first_of(workgroup, groups) + r * WG + lid;
        if (i + 3u * WG < n) {
            let four = array(source[i], source[i + WG], source[i + 2u * WG], source[i + 3u * WG]);
            all += four[0] + four[1] + four[2] + four[3];
        } else {
            for (var j = i; j < n; j += WG) { all += source[j]; }
        }
    }
    let sum = sum_of(lid, all);
    if (lid == 0u) { target_[workgroup.y * groups.x + workgroup.x] = sum; }
}

@compute @workgroup_size(WG)
fn check_copy(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    for (var r = 0u; r < ROUNDS; r++) {
        let i = first_of(workgroup, groups) + r * WG + lid;
        if (i < arrayLength(&target_) && any(target_[i] != random_content(i))) {
            atomicAdd(&wrong, 1u);
        }
    }
}

@compute @workgroup_size(WG)
fn check_read(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let n = arrayLength(&source);
    var all = vec4<u32>();
    for (var r = 0u; r < ROUNDS; r++) {
        let i = first_of(workgroup, groups) + r * WG + lid;
        if (i < n) { all += random_content(i); }
    }
    let sum = sum_of(lid, all);
    if (lid == 0u && any(target_[workgroup.y * groups.x + workgroup.x] != sum)) {
        atomicAdd(&wrong, 1u);
    }
}
