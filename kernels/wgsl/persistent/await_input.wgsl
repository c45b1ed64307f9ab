// Where a kernel first needs what operations before it made; before it, it may load weights and what a cache
// held before this step, and writes nothing, workgroup memory included. Every invocation of every workgroup
// gets here, once. A dispatch of its own has nothing to wait for. As a stage of a run (src/persistent.rs) this is
// where all workgroups wait for each other.
fn await_input() {}
