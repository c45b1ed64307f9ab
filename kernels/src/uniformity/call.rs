//! Uniformity through calls.

use naga::{Expression, Handle, Span, TypeInner};

use super::expression::Root;
use super::statement::Frame;
use super::{Analysis, Given, Inputs, Mark};

impl Analysis<'_> {
    /// Analyses a call, and returns the uniformity of its result.
    pub(super) fn call(
        &mut self,
        frame: &mut Frame<'_>,
        called: Handle<naga::Function>,
        arguments: &[Handle<Expression>],
        span: Span,
        flow: Mark,
    ) -> Mark {
        let function = &self.module.functions[called];
        let name = function.name.clone().unwrap_or_default();
        let (mut given, mut contents, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        for (i, argument) in arguments.iter().enumerate() {
            let ty = &self.module.types[function.arguments[i].ty].inner;
            let is_pointer =
                matches!(ty, TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. });
            let place = is_pointer.then(|| self.place(frame, *argument));
            let slot = place.as_ref().and_then(|place| match place.root {
                Root::Slot(slot) => Some((slot, place.is_part)),
                Root::Module(_) => None,
            });
            given.push(place.map_or_else(|| frame.mark(*argument), |place| place.index).or(flow));
            contents.push(slot.and_then(|(slot, _)| frame.slots[slot]));
            slots.push(slot);
        }
        // Inside the function the reasons are its parameters.
        let mut inside = |i: usize, mark: Mark, what: &str, given: Given| {
            let cause = Some(mark?);
            let parameter = function.arguments[i].name.as_deref().unwrap_or_default();
            let text = format!("{what} `{parameter}` of `{name}` may differ, from this call");
            self.because(span, text, cause, Some((called, given)))
        };
        let values = given.iter().enumerate();
        let values: Vec<_> =
            values.map(|(i, m)| inside(i, *m, "parameter", Given::Argument(i))).collect();
        let behind = contents.iter().enumerate();
        let behind: Vec<_> =
            behind.map(|(i, m)| inside(i, *m, "the value behind", Given::Contents(i))).collect();
        let around = flow.and_then(|_| {
            let text = format!("`{name}` is called in non-uniform control flow");
            self.because(span, text, flow, Some((called, Given::Flow)))
        });
        let inputs = Inputs { arguments: values, contents: behind, flow: around };
        let outcome = self.outcome(called, &inputs);
        // Outside they are this call's arguments, though an earlier call may have been analysed.
        let mut outside = |mark: Mark, what: String| {
            let cause = match self.given(Some(mark?), called) {
                None => mark,
                Some(Given::Argument(i)) => given[i],
                Some(Given::Contents(i)) => contents[i],
                Some(Given::Flow) => flow,
            };
            self.reason(span, what, cause.or(mark))
        };
        for (slot, mark) in slots.into_iter().zip(outcome.contents) {
            let Some((slot, is_part)) = slot else { continue };
            let what =
                format!("`{}` is given a value that may differ by `{name}`", frame.name(slot));
            let before = if is_part { frame.slots[slot] } else { None };
            frame.slots[slot] = before.or(outside(mark, what)).or(flow);
        }
        outside(outcome.result, format!("the result of `{name}` may differ")).or(flow)
    }
}
