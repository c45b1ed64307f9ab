// The residual stream of norm/residual for schedules that norm it themselves.
// requires: override ROWS: u32
// requires: var stream: array<f32>
override NEXT_NORM: u32;
override N: u32 = ROWS;

fn stream_at(i: u32) -> f32 { return stream[i]; }

fn set_stream(i: u32, value: f32) { stream[i] = value; }
