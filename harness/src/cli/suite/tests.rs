use super::*;

fn run(steps_per_submit: usize, ttft_ms: f64, decode_ms: f64, step_ms: &[f64]) -> SuiteRun {
    SuiteRun { steps_per_submit, ttft_ms, decode_ms, step_ms: step_ms.to_vec() }
}

#[test]
fn figures_are_medians_of_their_own_setting() {
    let config = Tier::Quick.configs(&[]).unwrap()[0];
    // 64 prompt and 64 generated tokens; steps only where each has a submission of its own.
    let runs = vec![
        run(8, 16.0, 84.0, &[]),
        run(1, 16.0, 126.0, &[2.0, 2.0, 4.0]),
        run(8, 32.0, 63.0, &[]),
        run(1, 16.0, 112.0, &[1.0, 2.0]),
        run(8, 8.0, 126.0, &[]),
        run(1, 16.0, 240.0, &[3.0, 9.0]),
    ];
    let f = figures(&config, 8, runs);
    assert_eq!((f.ttft_ms, f.prefill_tok_s), (16.0, 4000.0));
    assert_eq!((f.decode_tok_s, f.one_step_decode_tok_s), (750.0, 500.0));
    assert_eq!((f.e2e_tok_s, f.one_step_e2e_tok_s), (640.0, 64e3 / 142.0));
    assert_eq!(f.p50_ms, 2.0);
    assert!((f.p95_ms - 7.5).abs() < 1e-12, "{}", f.p95_ms);
}
