
// Polls before a workgroup gives up: workgroups that are not there by then never come.
const GRID_PATIENCE: u32 = 60000u;
var<private> grid_lid: u32;
var<private> grid_target: u32;

// The invocation's writes before it are seen by every invocation that has awaited it.
fn grid_arrive(counter: u32) {
    storageBarrier();
    if (grid_lid == 0u) {
        grid_target = (atomicAdd(&grid_arrivals[counter], 1u) / GRID_GROUPS + 1u) * GRID_GROUPS;
    }
}

fn grid_await(counter: u32) {
    if (grid_lid == 0u) {
        for (var polls = 1u; atomicLoad(&grid_arrivals[counter]) - grid_target >= 0x80000000u; polls++) {
            let others_gave_up = polls % 256u == 0u && atomicLoad(&grid_arrivals[0]) > 0u;
            if (polls > GRID_PATIENCE || others_gave_up) {
                atomicAdd(&grid_arrivals[0], 1u);
                break;
            }
        }
    }
    workgroupBarrier();
}
