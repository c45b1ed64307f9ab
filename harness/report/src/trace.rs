//! A profile as a Chrome trace (chrome://tracing, Perfetto): one slice an operation, laid end to
//! end as they were timed.

use lathe_record::record::Profile;
use serde_json::{Value, json};

/// The trace-event document of a profile.
pub fn trace(profile: &Profile) -> Value {
    let mut events = vec![
        json!({"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "GPU operations (serialised)"}}),
        json!({"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "CPU"}}),
    ];
    let mut at = 0.0;
    for step in &profile.steps {
        let begun = at;
        let slice = |tid: u32, name: &str, ts: f64, dur: f64| {
            json!({"ph": "X", "pid": 1, "tid": tid, "name": name, "ts": ts, "dur": dur,
                "args": {"position": step.position}})
        };
        let mut cpu = begun;
        for (name, ms) in
            [("record", step.record_ms), ("submit", step.submit_ms), ("wait", step.wait_ms)]
        {
            events.push(slice(2, name, cpu, ms * 1e3));
            cpu += ms * 1e3;
        }
        for (op, us) in profile.ops.iter().zip(&step.us) {
            let name = match op.layer {
                Some(layer) => format!("l{layer}.{}", op.op),
                None => op.op.clone(),
            };
            let mut event = slice(1, &name, at, *us);
            event["args"]["kernel"] = format!("{}/{}", op.kernel, op.variant).into();
            event["args"]["shape"] = op.shape.clone().into();
            events.push(event);
            at += us;
        }
        at = at.max(cpu);
    }
    json!({"displayTimeUnit": "ns", "traceEvents": events})
}
