// Ceilings of memory. A block is filled with a hash of each word's place, which no compression makes
// smaller; copies are compared with it, and what was read is compared by its sums. A round moves
// sixteen bytes an invocation.
@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> target_: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> wrong: atomic<u32>;

override WG: u32 = 256u;
override ROUNDS: u32 = 4u;
// 0 copies or reads, 1 checks what that left, 2 fills a block.
override WORK: u32 = 0u;

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
fn copy_block(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    for (var r = 0u; r < ROUNDS; r++) {
        let i = first_of(workgroup, groups) + r * WG + lid;
        if (i < arrayLength(&target_)) {
            if (WORK == 0u) {
                target_[i] = source[i];
            } else if (WORK == 2u) {
                target_[i] = random_content(i);
            } else if (any(target_[i] != random_content(i))) {
                atomicAdd(&wrong, 1u);
            }
        }
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
        if (WORK == 0u && i + 3u * WG < n) {
            let four = array(source[i], source[i + WG], source[i + 2u * WG], source[i + 3u * WG]);
            all += four[0] + four[1] + four[2] + four[3];
        } else {
            for (var j = i; j < min(n, i + 4u * WG); j += WG) {
                if (WORK == 0u) { all += source[j]; } else { all += random_content(j); }
            }
        }
    }
    let sum = sum_of(lid, all);
    let at = workgroup.y * groups.x + workgroup.x;
    if (lid == 0u) {
        if (WORK == 0u) {
            target_[at] = sum;
        } else if (any(target_[at] != sum)) {
            atomicAdd(&wrong, 1u);
        }
    }
}
