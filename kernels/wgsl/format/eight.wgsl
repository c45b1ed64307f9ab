// Eight neighbouring values.
struct Eight { low: vec4<f32>, high: vec4<f32> }
