//! Timestamps that the GPU writes at the ends of passes, and their read-back.

use std::time::Duration;

use wgpu::BufferUsages;

use super::Gpu;
use super::buffers::create;
use crate::error::Result;

/// Spans in one query set, two timestamps each.
const SPANS_A_SET: usize = wgpu::QUERY_SET_MAX_QUERIES as usize / 2;

/// Bytes that a span's two timestamps resolve to.
const SPAN_BYTES: u64 = 2 * wgpu::QUERY_SIZE as u64;

// Sets resolve one behind the other into one buffer.
const _: () =
    assert!((SPANS_A_SET as u64 * SPAN_BYTES).is_multiple_of(wgpu::QUERY_RESOLVE_BUFFER_ALIGNMENT));

/// Reusable queries and buffers for a number of spans, each between two timestamps. Reading takes
/// four steps: passes carry the result of [`Timestamps::around`] or [`Timestamps::writes`], the
/// last command encoder is given to [`Timestamps::resolve`], [`Timestamps::map`] follows the
/// submission, and [`Timestamps::read`] the wait for it.
#[derive(Debug)]
pub(crate) struct Timestamps {
    sets: Vec<wgpu::QuerySet>,
    spans: usize,
    resolved: wgpu::Buffer,
    staging: wgpu::Buffer,
}

/// The two timestamps of a span, in ticks of [`Gpu::timestamp_period`] nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// The first.
    pub begin: u64,
    /// The second.
    pub end: u64,
}

impl Ticks {
    /// Ticks from the first to the second; none where time ran backwards.
    pub(crate) fn elapsed(self) -> Option<u64> {
        self.end.checked_sub(self.begin)
    }

    /// The time between them; none if the timestamp did not advance.
    pub(crate) fn duration(self, period_ns: f64) -> Option<Duration> {
        let ticks = self.elapsed().filter(|ticks| *ticks > 0)?;
        Some(Duration::from_nanos((ticks as f64 * period_ns) as u64))
    }
}

impl Timestamps {
    /// Allocates queries and buffers for `spans` spans; none on an adapter without timestamps.
    pub(crate) fn new(gpu: &Gpu, spans: usize) -> Result<Option<Self>> {
        if !gpu.adapter.timestamps {
            return Ok(None);
        }
        let made = gpu.scoped("timestamp queries", |device| {
            let size = spans.max(1) as u64 * SPAN_BYTES;
            let buffer = |usage| create(device, "timestamps", size, usage | BufferUsages::COPY_DST);
            let sets = sets(spans).map(|(_, queries)| {
                device.create_query_set(&wgpu::QuerySetDescriptor {
                    label: Some("timestamps"),
                    ty: wgpu::QueryType::Timestamp,
                    count: queries,
                })
            });
            Self {
                sets: sets.collect(),
                spans,
                resolved: buffer(BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC),
                staging: buffer(BufferUsages::MAP_READ),
            }
        })?;
        Ok(Some(made))
    }

    /// Timestamp writes of a pass that is a whole span.
    pub(crate) fn around(&self, span: usize) -> wgpu::ComputePassTimestampWrites<'_> {
        self.writes(span, true, true)
    }

    /// Timestamp writes of a pass that begins a span, ends it, or both.
    pub(crate) fn writes(
        &self,
        span: usize,
        begins: bool,
        ends: bool,
    ) -> wgpu::ComputePassTimestampWrites<'_> {
        let (set, query) = place(span);
        wgpu::ComputePassTimestampWrites {
            query_set: &self.sets[set],
            beginning_of_pass_write_index: begins.then_some(query),
            end_of_pass_write_index: ends.then_some(query + 1),
        }
    }

    /// Ends the commands whose passes carry the timestamps: resolves and copies them.
    pub(crate) fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        for (set, (offset, queries)) in self.sets.iter().zip(sets(self.spans)) {
            encoder.resolve_query_set(set, 0..queries, &self.resolved, offset);
        }
        let bytes = self.spans as u64 * SPAN_BYTES;
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.staging, 0, bytes);
    }

    /// Requests the timestamps of the submission just made.
    pub(crate) fn map(&self) {
        self.staging.map_async(wgpu::MapMode::Read, .., |_| {});
    }

    /// The timestamps of each span; valid after the wait for the submission.
    pub(crate) fn read(&self, gpu: &Gpu) -> Result<Vec<Ticks>> {
        let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(&gpu.mapped(&self.staging)?);
        let pairs = ticks.as_chunks().0.iter().take(self.spans);
        Ok(pairs.map(|[begin, end]| Ticks { begin: *begin, end: *end }).collect())
    }
}

/// The query set of a span and its first query there.
fn place(span: usize) -> (usize, u32) {
    (span / SPANS_A_SET, 2 * (span % SPANS_A_SET) as u32)
}

/// Byte offset in the resolve buffer and number of queries of each set.
fn sets(spans: usize) -> impl Iterator<Item = (u64, u32)> {
    (0..spans.div_ceil(SPANS_A_SET)).map(move |set| {
        let first = set * SPANS_A_SET;
        (first as u64 * SPAN_BYTES, 2 * (spans - first).min(SPANS_A_SET) as u32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_span_has_two_queries_of_its_own_and_resolves_in_order() {
        for spans in [0, 1, 2, 2047, 2048, 2049, 3 * 2048 + 5] {
            let sets: Vec<_> = sets(spans).collect();
            for (offset, queries) in &sets {
                assert!(*queries >= 2 && *queries <= wgpu::QUERY_SET_MAX_QUERIES, "{spans}");
                assert_eq!(offset % wgpu::QUERY_RESOLVE_BUFFER_ALIGNMENT, 0, "{spans}");
            }
            for span in 0..spans {
                let (set, query) = place(span);
                let (offset, queries) = sets[set];
                assert!(query + 1 < queries, "{span} of {spans}");
                let at = offset + u64::from(query * wgpu::QUERY_SIZE);
                assert_eq!(at, span as u64 * SPAN_BYTES, "{span} of {spans}");
            }
        }
    }

    #[test]
    fn a_timestamp_that_did_not_advance_is_no_measurement() {
        let ticks = |begin, end| Ticks { begin, end };
        assert_eq!(ticks(10, 15).duration(32.0), Some(Duration::from_nanos(160)));
        assert_eq!(ticks(10, 13).duration(0.5), Some(Duration::from_nanos(1)));
        assert_eq!(ticks(10, 10).duration(32.0), None);
        assert_eq!(ticks(10, 9).duration(32.0), None);
        assert_eq!(ticks(0, u64::MAX).elapsed(), Some(u64::MAX));
        assert_eq!(ticks(10, 10).elapsed(), Some(0));
        assert_eq!(ticks(10, 9).elapsed(), None);
    }
}
