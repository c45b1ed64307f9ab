//! The device memory of tensors, in checks between guard words.

use std::sync::{OnceLock, PoisonError};

use lathe_record::rng::Rng;
use wgpu::BufferUsages;

use super::device::{Gpu, Uploads, create};
use crate::error::Result;
use crate::plan::memory::{UPLOAD_BYTES, UPLOADS_IN_FLIGHT};
use crate::plan::recording::padded;

/// Fill value of guards, padding and unwritten outputs: a NaN that arithmetic does not produce.
/// Each process draws a new one, so no kernel can know it beforehand.
pub fn poison() -> u32 {
    static POISON: OnceLock<u32> = OnceLock::new();
    // Neither the NaN that arithmetic makes (all other bits zero) nor all ones.
    *POISON.get_or_init(|| 0x7fc0_0001 + Rng::fresh().below(0x003f_fff0))
}

/// Size of the poison buffer that copies are made from.
const POISON_BYTES: u64 = 1 << 20;

/// Bytes before and after a guarded tensor; also the alignment of its binding.
pub const GUARD_BYTES: u64 = 256;

impl Gpu {
    /// Waits until staging memory for `bytes` more stays within its bound.
    fn make_room(&self, bytes: u64) {
        let mut uploads = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
        if uploads.pending + bytes > UPLOAD_BYTES {
            uploads.submitted.push_back(self.queue.submit([]));
            uploads.pending = 0;
            if uploads.submitted.len() as u64 > UPLOADS_IN_FLIGHT {
                // Here staging is at its peak.
                self.note_memory();
                // A fault shows at the next check; waiting for it has an end.
                let _ = self.device.poll(wgpu::PollType::Wait {
                    submission_index: uploads.submitted.pop_front(),
                    timeout: Some(self.timeout),
                });
            }
        }
        uploads.pending += bytes;
    }

    /// A buffer of [`poison`] to copy from.
    fn poison(&self) -> &wgpu::Buffer {
        self.poison.get_or_init(|| {
            let usage = BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
            let buffer = create(&self.device, "poison", POISON_BYTES, usage);
            let words = vec![poison(); POISON_BYTES as usize / 4];
            self.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(&words));
            buffer
        })
    }

    /// Submits all pending writes and waits for them, which frees their staging memory.
    pub(crate) fn finish_uploads(&self) -> Result<()> {
        let last = self.caught(|| {
            let mut uploads = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
            *uploads = Uploads::default();
            self.queue.submit([])
        })?;
        self.note_memory();
        self.wait(Some(last))
    }
}

/// Placement of a tensor in its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The tensor and its padding alone.
    Plain,
    /// Poisoned, with guard words on both sides. Tensors of a stack are plain: they are neighbours.
    Guarded,
}

/// A tensor's device memory.
#[derive(Debug)]
pub struct DeviceBuffer {
    /// The buffer, which may hold other tensors as well.
    pub buffer: wgpu::Buffer,
    /// Bytes of content.
    pub bytes: u64,
    policy: Policy,
    /// Byte offset of this tensor's part of the buffer.
    at: u64,
}

impl DeviceBuffer {
    /// Allocates a tensor. Zero bytes still make a bindable block.
    pub fn new(gpu: &Gpu, name: &str, bytes: u64, policy: Policy) -> Result<Self> {
        let buffer = Self::allocate(gpu, name, bytes, policy)?;
        let block = Self { buffer, bytes, policy, at: 0 };
        if policy == Policy::Guarded {
            gpu.caught(|| block.poison(gpu))?;
        }
        Ok(block)
    }

    /// Blocks of one buffer at equal distances of `stride` bytes.
    pub fn stacked(
        gpu: &Gpu,
        name: &str,
        bytes: u64,
        stride: u64,
        count: usize,
    ) -> Result<Vec<Self>> {
        let policy = Policy::Plain;
        let buffer = Self::allocate(gpu, name, stride * count as u64, policy)?;
        let at = (0..count as u64).map(|i| i * stride);
        Ok(at.map(|at| Self { buffer: buffer.clone(), bytes, policy, at }).collect())
    }

    /// Returns true if it begins `bytes` bytes after `first` in the same buffer.
    pub fn follows(&self, first: &Self, bytes: u64) -> bool {
        self.buffer == first.buffer && self.at == first.at + bytes
    }

    fn allocate(gpu: &Gpu, name: &str, bytes: u64, policy: Policy) -> Result<wgpu::Buffer> {
        let bound = padded(bytes);
        let size = bound + 2 * guard(policy);
        let refuse =
            |reason: String| gpu.unavailable(format!("tensor {name} of {bytes} bytes"), reason);
        if bound > gpu.adapter.max_binding_bytes {
            return Err(refuse(format!(
                "it exceeds the adapter's largest storage binding, {} bytes",
                gpu.adapter.max_binding_bytes
            )));
        }
        if size > gpu.adapter.max_buffer_bytes {
            return Err(refuse(format!(
                "it exceeds the adapter's largest buffer, {} bytes",
                gpu.adapter.max_buffer_bytes
            )));
        }
        let bound = BufferUsages::STORAGE | BufferUsages::UNIFORM;
        let usage = bound | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let what = format!("tensor {name} of {size} bytes");
        gpu.scoped(&what, |device| create(device, name, size, usage))
    }

    /// Bytes it occupies: content, padding and guards.
    pub fn size(&self) -> u64 {
        padded(self.bytes) + 2 * guard(self.policy)
    }

    /// Fills content, padding and guards with [`poison`].
    pub fn poison(&self, gpu: &Gpu) {
        gpu.submit(|encoder| self.encode_poison(gpu, encoder));
    }

    /// Encodes [`DeviceBuffer::poison`] as a command.
    pub(crate) fn encode_poison(&self, gpu: &Gpu, encoder: &mut wgpu::CommandEncoder) {
        let (from, size) = (gpu.poison(), self.size());
        for at in (0..size).step_by(POISON_BYTES as usize) {
            let bytes = POISON_BYTES.min(size - at);
            encoder.copy_buffer_to_buffer(from, 0, &self.buffer, self.at + at, bytes);
        }
    }

    /// Encodes zeroing of content and padding as a command.
    pub(crate) fn encode_zeros(&self, encoder: &mut wgpu::CommandEncoder) {
        encoder.clear_buffer(&self.buffer, self.offset(), Some(padded(self.bytes)));
    }

    /// New memory with the same content.
    pub(crate) fn copied(&self, gpu: &Gpu, name: &str) -> Result<Self> {
        self.turned(gpu, name, 0)
    }

    /// New memory with the content rotated by `by` bytes: each byte further on, the last ones
    /// first.
    pub(crate) fn turned(&self, gpu: &Gpu, name: &str, by: u64) -> Result<Self> {
        let copy = Self::new(gpu, name, self.bytes, Policy::Plain)?;
        let (from, rest) = (self.offset(), padded(self.bytes) - by);
        // What pads the end is nobody's.
        let last = self.bytes.next_multiple_of(4) - by;
        gpu.caught(|| {
            gpu.submit(|encoder| {
                encoder.copy_buffer_to_buffer(&self.buffer, from, &copy.buffer, by, rest);
                encoder.copy_buffer_to_buffer(&self.buffer, from + last, &copy.buffer, 0, by);
            })
        })?;
        Ok(copy)
    }

    /// Encodes a copy of another block of the same size over this one as a command.
    pub(crate) fn encode_copy(&self, from: &Self, encoder: &mut wgpu::CommandEncoder) {
        let bytes = padded(self.bytes).min(padded(from.bytes));
        let (source, target) = (from.offset(), self.offset());
        encoder.copy_buffer_to_buffer(&from.buffer, source, &self.buffer, target, bytes);
    }

    /// Writes content from its byte `offset` on. Offset and length are multiples of 4.
    pub fn write(&self, gpu: &Gpu, offset: u64, data: &[u8]) {
        assert!(offset + data.len() as u64 <= padded(self.bytes), "write past the tensor");
        let mut offset = self.offset() + offset;
        for part in data.chunks(UPLOAD_BYTES as usize) {
            gpu.make_room(part.len() as u64);
            gpu.queue.write_buffer(&self.buffer, offset, part);
            offset += part.len() as u64;
        }
    }

    /// The binding of this tensor: content and padding, without guards.
    pub fn binding(&self) -> wgpu::BufferBinding<'_> {
        wgpu::BufferBinding {
            buffer: &self.buffer,
            offset: self.offset(),
            size: std::num::NonZeroU64::new(padded(self.bytes)),
        }
    }

    /// The binding of the `bytes` bytes from this tensor on, for all tensors in them.
    pub fn binding_of(&self, bytes: u64) -> wgpu::BufferBinding<'_> {
        wgpu::BufferBinding { size: std::num::NonZeroU64::new(bytes), ..self.binding() }
    }

    /// Byte offset of the content in the buffer.
    pub fn offset(&self) -> u64 {
        self.at + guard(self.policy)
    }

    /// Reads the content back.
    pub fn read(&self, gpu: &Gpu) -> Result<Vec<u8>> {
        let mut bytes = gpu.read(&self.buffer, self.offset(), padded(self.bytes))?;
        bytes.truncate(self.bytes as usize);
        Ok(bytes)
    }

    /// Reads a guarded block back: the content, and the byte offset (relative to the content's
    /// start) of the first word outside it that is no longer poison.
    pub fn read_guarded(&self, gpu: &Gpu) -> Result<(Vec<u8>, Option<i64>)> {
        let all = gpu.read(&self.buffer, self.at, self.size())?;
        let (start, end) = (GUARD_BYTES as usize, GUARD_BYTES as usize + self.bytes as usize);
        let poison = poison().to_le_bytes();
        let touched = (0..all.len())
            .filter(|i| *i < start || *i >= end)
            .find(|i| all[*i] != poison[*i % 4])
            .map(|i| i as i64 - start as i64);
        Ok((all[start..end].to_vec(), touched))
    }
}

fn guard(policy: Policy) -> u64 {
    match policy {
        Policy::Plain => 0,
        Policy::Guarded => GUARD_BYTES,
    }
}
