//! Stored rows as values.

use lathe_kernels::dequant::Dequant;
use lathe_reference::Expected;
use lathe_reference::dequant::dequant;

use super::rows::format_of;
use super::{Inputs, Oracle, Outcomes};

impl Oracle for Dequant {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let rows = inputs.weights("weights");
        let parts = rows.parts.iter().map(|part| dequant(format_of(rows), part.get(), rows.k));
        inputs.real("y", Expected::join(parts))
    }
}
