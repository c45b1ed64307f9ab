//! Clocks, power and temperature of a GPU, and whether the driver throttles its clocks. Read from
//! NVIDIA's management library where it is installed, else from Linux.

use std::ffi::{CString, c_char, c_uint, c_ulonglong, c_void};
use std::marker::PhantomData;
use std::path::Path;
use std::sync::OnceLock;

use lathe_record::record::{Card, GpuState};
use libloading::Library;

use super::{Gpu, sysfs};

/// Bits that mean throttling. Bits for an idle GPU and for fixed clocks are left out.
const REASONS: &[(c_ulonglong, &str)] = &[
    (0x04, "power cap"),
    (0x08, "hardware slowdown"),
    (0x20, "thermal slowdown"),
    (0x40, "hardware thermal slowdown"),
    (0x80, "power brake"),
];

type Device = *mut c_void;
type Read<T> = unsafe extern "C" fn(Device, *mut T) -> c_uint;
type ReadKind = unsafe extern "C" fn(Device, c_uint, *mut c_uint) -> c_uint;
type ReadTwo = unsafe extern "C" fn(Device, *mut c_uint, *mut c_uint) -> c_uint;

const SM: c_uint = 1;
const MEMORY: c_uint = 2;

/// A function of the library that takes a device and writes one `T`.
struct Reads<T>(&'static [u8], PhantomData<T>);

/// Total, free and used bytes.
const MEMORY_INFO: Reads<[c_ulonglong; 3]> = Reads(b"nvmlDeviceGetMemoryInfo\0", PhantomData);
const PERSISTENCE: Reads<c_uint> = Reads(b"nvmlDeviceGetPersistenceMode\0", PhantomData);
const POWER_USAGE: Reads<c_uint> = Reads(b"nvmlDeviceGetPowerUsage\0", PhantomData);
const POWER_LIMIT: Reads<c_uint> = Reads(b"nvmlDeviceGetEnforcedPowerLimit\0", PhantomData);
const THROTTLE: Reads<c_ulonglong> =
    Reads(b"nvmlDeviceGetCurrentClocksThrottleReasons\0", PhantomData);

/// The library, initialised once per process and never shut down.
struct Nvml(Library);

impl Nvml {
    fn get() -> Option<&'static Self> {
        static NVML: OnceLock<Option<Nvml>> = OnceLock::new();
        NVML.get_or_init(|| {
            let name = if cfg!(windows) { "nvml.dll" } else { "libnvidia-ml.so.1" };
            // SAFETY: NVML's initialisation on loading has no side effects that matter here, and
            // `nvmlInit_v2` takes nothing and returns a code.
            unsafe {
                let library = Library::new(name).ok()?;
                let init: unsafe extern "C" fn() -> c_uint = *library.get(b"nvmlInit_v2\0").ok()?;
                (init() == 0).then_some(Self(library))
            }
        })
        .as_ref()
    }

    fn device(&self, pci: &str) -> Option<Device> {
        let pci = CString::new(pci).ok()?;
        let mut device: Device = std::ptr::null_mut();
        // SAFETY: the function has this signature since NVML 5; the string ends with a zero and the
        // handle is written before it is read.
        unsafe {
            let find: unsafe extern "C" fn(*const c_char, *mut Device) -> c_uint =
                *self.0.get(b"nvmlDeviceGetHandleByPciBusId_v2\0").ok()?;
            (find(pci.as_ptr(), &raw mut device) == 0).then_some(device)
        }
    }

    fn read<T: Default>(&self, Reads(name, _): Reads<T>, device: Device) -> Option<T> {
        let mut value = T::default();
        // SAFETY: what a function writes stands beside its name.
        unsafe {
            let read: Read<T> = *self.0.get(name).ok()?;
            (read(device, &raw mut value) == 0).then_some(value)
        }
    }

    fn number_of(&self, name: &[u8], device: Device, kind: c_uint) -> Option<u32> {
        let mut value = 0;
        // SAFETY: as above, with a kind of clock or sensor before the result.
        unsafe {
            let read: ReadKind = *self.0.get(name).ok()?;
            (read(device, kind, &raw mut value) == 0).then_some(value)
        }
    }

    /// The current state of a mode; the library also returns the state after a restart.
    fn mode(&self, name: &[u8], device: Device) -> Option<bool> {
        let (mut now, mut later) = (0, 0);
        // SAFETY: every function asked for here takes a device and writes two unsigned integers.
        unsafe {
            let read: ReadTwo = *self.0.get(name).ok()?;
            (read(device, &raw mut now, &raw mut later) == 0).then_some(now != 0)
        }
    }

    /// Reasons for throttled clocks; empty where the library reports none.
    fn throttled(&self, device: Device) -> impl Iterator<Item = &'static str> {
        let reasons = self.read(THROTTLE, device).unwrap_or_default();
        REASONS.iter().filter(move |(bit, _)| reasons & bit != 0).map(|(_, name)| *name)
    }
}

impl Gpu {
    fn managed(&self) -> Option<(&'static Nvml, Device)> {
        let nvml = Nvml::get()?;
        Some((nvml, nvml.device(self.adapter.pci.as_deref()?)?))
    }

    /// The GPU's setup; none where its driver cannot be asked.
    pub fn card(&self) -> Option<Card> {
        let (nvml, device) = self.managed()?;
        let most = |kind| nvml.number_of(b"nvmlDeviceGetMaxClockInfo\0", device, kind);
        Some(Card {
            memory_bytes: nvml.read(MEMORY_INFO, device).map(|[total, _free, _used]| total),
            ecc: nvml.mode(b"nvmlDeviceGetEccMode\0", device),
            mig: nvml.mode(b"nvmlDeviceGetMigMode\0", device),
            persistence: nvml.read(PERSISTENCE, device).map(|mode| mode != 0),
            max_sm_mhz: most(SM),
            max_memory_mhz: most(MEMORY),
        })
    }

    /// The GPU's current state as its driver reports it; none where it cannot be asked.
    pub fn state(&self) -> Option<GpuState> {
        let Some((nvml, device)) = self.managed() else { return self.said_by_linux() };
        let watts = |power| nvml.read(power, device).map(|mw| f64::from(mw) / 1e3);
        Some(GpuState {
            sm_mhz: nvml.number_of(b"nvmlDeviceGetClockInfo\0", device, SM),
            memory_mhz: nvml.number_of(b"nvmlDeviceGetClockInfo\0", device, MEMORY),
            power_w: watts(POWER_USAGE),
            power_limit_w: watts(POWER_LIMIT),
            temperature_c: nvml.number_of(b"nvmlDeviceGetTemperature\0", device, 0),
            throttled: nvml.throttled(device).map(str::to_owned).collect(),
        })
    }

    fn said_by_linux(&self) -> Option<GpuState> {
        sysfs::state(Path::new("/sys"), self.adapter.pci.as_deref()?)
    }

    /// Returns true if the driver throttles the clocks; false where it cannot be asked.
    pub fn is_throttled(&self) -> bool {
        let Some((nvml, device)) = self.managed() else {
            return self.said_by_linux().is_some_and(|state| !state.throttled.is_empty());
        };
        nvml.throttled(device).next().is_some()
    }
}
