//! Device memory of a model with its context: predicted before it is loaded, measured after it ran.

use lathe_harness::data::bytes;
use lathe_harness::decode::DecodeGraph;
use lathe_harness::error::Result;
use lathe_harness::gpu::{DeviceMemory, Gpu};
use lathe_harness::plan::memory::Memory;
use serde::Serialize;

/// What a model will take, said before it is loaded.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Predicted {
    /// Bytes by what they are for.
    predicted: Memory,
    /// All of them.
    predicted_bytes: u64,
    /// Bytes that the device has free before; null where it does not say.
    free_bytes: Option<u64>,
    /// Bytes of its memory; null where it does not say.
    device_bytes: Option<u64>,
    /// `--memory-limit`.
    limit_bytes: Option<u64>,
}

/// What was predicted and what was measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Reported {
    #[serde(flatten)]
    predicted: Predicted,
    /// The most that wgpu's allocator had given out; null where the back end has none.
    pub(super) allocated_peak_bytes: Option<u64>,
    /// The most that the driver counted, with what allocators take in advance; null where it does
    /// not say.
    used_peak_bytes: Option<u64>,
}

impl Predicted {
    /// Predicts what a graph takes on a device, and refuses what does not fit.
    ///
    /// # Errors
    /// It exceeds what is free, or the limit.
    pub(super) fn of(gpu: &Gpu, graph: &DecodeGraph) -> Result<Self> {
        let (predicted, admitted) = Self::with(gpu, graph);
        admitted.map(|()| predicted)
    }

    /// What a graph takes, and whether it fits.
    pub(super) fn with(gpu: &Gpu, graph: &DecodeGraph) -> (Self, Result<()>) {
        let memory = Memory::of(&graph.recording);
        let device = gpu.memory();
        let predicted = Self {
            predicted: memory,
            predicted_bytes: memory.total(),
            free_bytes: device.filter(|m| m.budget.is_some()).map(DeviceMemory::free),
            device_bytes: device.map(|m| m.size),
            limit_bytes: gpu.memory_limit,
        };
        (predicted, gpu.admit(&graph.recording, &memory))
    }

    /// With what the run took.
    pub(super) fn measured(&self, gpu: &Gpu) -> Reported {
        let peak = gpu.peak_memory();
        Reported {
            predicted: *self,
            allocated_peak_bytes: peak.allocated,
            used_peak_bytes: peak.used,
        }
    }
}

impl std::fmt::Display for Predicted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} predicted ({})", bytes(self.predicted_bytes), self.predicted)?;
        match (self.free_bytes, self.device_bytes) {
            (Some(free), Some(all)) => write!(f, "; {} free of {}", bytes(free), bytes(all))?,
            (_, Some(all)) => {
                write!(f, "; the device has {}, how much is free it does not say", bytes(all))?;
            }
            _ => write!(f, "; how much memory the device has the back end does not say")?,
        }
        match self.limit_bytes {
            Some(limit) => write!(f, ", limit {}", bytes(limit)),
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for Reported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} predicted", bytes(self.predicted.predicted_bytes))?;
        if let Some(peak) = self.allocated_peak_bytes {
            write!(f, ", {} allocated at peak", bytes(peak))?;
        }
        if let Some(used) = self.used_peak_bytes {
            write!(f, ", {} in use by the driver's count", bytes(used))?;
        }
        Ok(())
    }
}

/// Bytes of the command line: a number with KB, MB, GB, KiB, MiB or GiB, or bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 7] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("B", 1),
    ];
    let expected =
        || format!("expected bytes, or a number with a unit such as 512MiB or 7.5GB, not {text}");
    let unit = UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)));
    let (number, unit) = unit.unwrap_or((text, 1));
    let number = number.trim_end();
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit).ok_or_else(expected);
    }
    let is_decimal = unit > 1 && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match number.parse::<f64>() {
        // Less than 2^53 is exact enough, and no device has more.
        Ok(value) if is_decimal && value * (unit as f64) < 9e15 => Ok((value * unit as f64) as u64),
        _ => Err(expected()),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("0", 0),
            ("123456", 123_456),
            ("7 B", 7),
            ("512MiB", 512 << 20),
            ("512 MiB", 512 << 20),
            ("1.5GiB", 3 << 29),
            ("7.5GB", 7_500_000_000),
            ("64KB", 64_000),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "MiB",
            "-1",
            "1.5",
            "1e9GB",
            "nanGB",
            "infGiB",
            "1 mib",
            "12 parsecs",
            "99999999999GiB",
        ] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
