// Sums of four rows, one vec4 a vector. Named values and not an array, so that all of them stay in
// registers.
var<private> sum0: vec4<f32>;
var<private> sum1: vec4<f32>;
var<private> sum2: vec4<f32>;
var<private> sum3: vec4<f32>;
var<private> sum4: vec4<f32>;
var<private> sum5: vec4<f32>;
var<private> sum6: vec4<f32>;
var<private> sum7: vec4<f32>;

fn clear_vector_sums() {
    sum0 = vec4<f32>(0.0);
    sum1 = vec4<f32>(0.0);
    sum2 = vec4<f32>(0.0);
    sum3 = vec4<f32>(0.0);
    sum4 = vec4<f32>(0.0);
    sum5 = vec4<f32>(0.0);
    sum6 = vec4<f32>(0.0);
    sum7 = vec4<f32>(0.0);
}

fn vector_sum(vector: u32) -> vec4<f32> {
    switch vector {
        case 1u: { return sum1; }
        case 2u: { return sum2; }
        case 3u: { return sum3; }
        case 4u: { return sum4; }
        case 5u: { return sum5; }
        case 6u: { return sum6; }
        case 7u: { return sum7; }
        default: { return sum0; }
    }
}
