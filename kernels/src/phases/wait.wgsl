
// Polls before a workgroup gives up: workgroups that are not there by then never come.
const RUN_PATIENCE: u32 = 60000u;
var<private> run_lid: u32;
var<private> run_all: u32;

// The invocation's writes before it are seen by every invocation that has awaited it.
fn run_arrive(counter: u32) {
    storageBarrier();
    if (run_lid == 0u) {
        run_all = (atomicAdd(&run_arrivals[counter], 1u) / RUN_GROUPS + 1u) * RUN_GROUPS;
    }
}

fn run_await(counter: u32) {
    if (run_lid == 0u) {
        for (var polls = 1u; atomicLoad(&run_arrivals[counter]) - run_all >= 0x80000000u; polls++) {
            let others_gave_up = polls % 256u == 0u && atomicLoad(&run_arrivals[0]) > 0u;
            if (polls > RUN_PATIENCE || others_gave_up) {
                atomicAdd(&run_arrivals[0], 1u);
                break;
            }
        }
    }
    workgroupBarrier();
}
