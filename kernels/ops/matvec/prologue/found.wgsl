// x is found as the kernel reads it: nothing has to be made of it first.
fn ready_x(at: u32, size: u32, group: u32, groups: u32) {}
