//! The ceiling: bandwidth of a device-to-device copy, bytes read plus bytes written.

use serde::Serialize;

use super::span::Span;
use super::stats;
use crate::error::Result;
use crate::gpu::Gpu;

/// Measured copy bandwidth.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CopyBandwidth {
    /// Bytes read plus bytes written a second, in units of 10^9.
    pub gb_s: f64,
    /// Bytes copied at a time.
    pub bytes: u64,
    /// Interquartile range over the median.
    pub spread: f64,
}

/// Measures the copy of a block far larger than any cache (smaller on software adapters).
pub fn copy_bandwidth(gpu: &Gpu) -> Result<CopyBandwidth> {
    let wanted: u64 = if gpu.adapter.software { 64 << 20 } else { 1 << 30 };
    let bytes = wanted.min(gpu.adapter.max_buffer_bytes / 2);
    let make = || {
        gpu.scoped("copy buffers", |device| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("copy"),
                size: bytes,
                usage: wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        })
    };
    let (from, to) = (make()?, make()?);
    let span = Span::new(gpu)?;
    let (warm_up, runs) = if gpu.adapter.software { (1, 5) } else { (100, 25) };
    let copy = || span.commands(gpu, |e| e.copy_buffer_to_buffer(&from, 0, &to, 0, bytes));
    for _ in 0..warm_up {
        copy()?;
    }
    let seconds: Vec<f64> =
        (0..runs).map(|_| copy().map(|d| d.as_secs_f64())).collect::<Result<_>>()?;
    let summary = stats::summarise(&seconds);
    Ok(CopyBandwidth {
        gb_s: 2.0 * bytes as f64 / summary.median / 1e9,
        bytes,
        spread: summary.spread,
    })
}
