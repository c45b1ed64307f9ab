// What a running softmax begins with, and the factor that makes exp2 of exp.
const LOWEST: f32 = -3.0e38;
const LOG2_E: f32 = 1.4426950408889634;
