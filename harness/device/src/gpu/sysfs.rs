//! GPU state that Linux drivers report below /sys: AMD's clocks, power and temperature, Intel's
//! clock and its throttle reasons. Written from the kernel's documentation and tested on folders of
//! the same shape, not on such a GPU.
//!
//! Source: *GPU Power/Thermal Controls and Monitoring* of amdgpu, the ABI of i915 and the
//! attributes of xe for throttling, in the documentation of the Linux kernel.

use std::fs;
use std::path::{Path, PathBuf};

use lathe_record::record::GpuState;

/// The state of the device at a PCI address such as 0000:03:00.0; none where its driver reports
/// nothing.
pub(super) fn state(sys: &Path, pci: &str) -> Option<GpuState> {
    let device = sys.join("bus/pci/devices").join(pci);
    let monitor = first(&device.join("hwmon"), "hwmon").unwrap_or_default();
    let sensor = |name: &str, unit: f64| number(&monitor.join(name)).map(|value| value / unit);
    let (xe, card) = (device.join("tile0/gt0/freq0"), first(&device.join("drm"), "card"));
    let card = card.unwrap_or_default();
    // Sensors are in Hz, µW and 1/1000 degree.
    let clock = sensor("freq1_input", 1e6)
        .or_else(|| number(&xe.join("act_freq")))
        .or_else(|| number(&card.join("gt_act_freq_mhz")));
    let mut throttled = reasons(&xe.join("throttle"), "reason_");
    throttled.extend(reasons(&card.join("gt/gt0"), "throttle_reason_"));
    let state = GpuState {
        sm_mhz: clock.map(|mhz| mhz as u32),
        memory_mhz: sensor("freq2_input", 1e6).map(|mhz| mhz as u32),
        power_w: sensor("power1_average", 1e6).or_else(|| sensor("power1_input", 1e6)),
        power_limit_w: sensor("power1_cap", 1e6).or_else(|| sensor("power1_max", 1e6)),
        temperature_c: sensor("temp1_input", 1e3).map(|celsius| celsius as u32),
        throttled,
    };
    (state != GpuState::default()).then_some(state)
}

fn number(path: &Path) -> Option<f64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The first entry of a folder, by name, with this prefix.
fn first(folder: &Path, prefix: &str) -> Option<PathBuf> {
    names(folder, prefix).into_iter().next().map(|name| folder.join(name))
}

/// Names of the files with this prefix that are not 0, without the summary file `status`.
fn reasons(folder: &Path, prefix: &str) -> Vec<String> {
    let names = names(folder, prefix).into_iter();
    let told = names.filter(|name| number(&folder.join(name)).is_some_and(|value| value != 0.0));
    let reasons = told.map(|name| name[prefix.len()..].replace('_', " "));
    reasons.filter(|reason| reason != "status").collect()
}

fn names(folder: &Path, prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| name.starts_with(prefix)).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const PCI: &str = "0000:03:00.0";

    fn said(files: &[(&str, &str)]) -> Option<GpuState> {
        let sys = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = sys.path().join("bus/pci/devices").join(PCI).join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        state(sys.path(), PCI)
    }

    #[test]
    fn sensors_have_units_and_throttling_its_reasons() {
        let none = GpuState::default();
        for (files, expected) in [
            (
                &[
                    ("hwmon/hwmon3/freq1_input", "2482000000\n"),
                    ("hwmon/hwmon3/freq2_input", "1249000000\n"),
                    ("hwmon/hwmon3/power1_average", "211000000\n"),
                    ("hwmon/hwmon3/power1_cap", "303000000\n"),
                    ("hwmon/hwmon3/temp1_input", "61000\n"),
                ][..],
                GpuState {
                    sm_mhz: Some(2482),
                    memory_mhz: Some(1249),
                    power_w: Some(211.0),
                    power_limit_w: Some(303.0),
                    temperature_c: Some(61),
                    throttled: Vec::new(),
                },
            ),
            (
                &[
                    ("drm/card1/gt_act_freq_mhz", "1150\n"),
                    ("drm/card1/gt/gt0/throttle_reason_status", "1\n"),
                    ("drm/card1/gt/gt0/throttle_reason_pl1", "1\n"),
                    ("drm/card1/gt/gt0/throttle_reason_thermal", "0\n"),
                    ("hwmon/hwmon0/power1_max", "28000000\n"),
                ],
                GpuState {
                    sm_mhz: Some(1150),
                    power_limit_w: Some(28.0),
                    throttled: vec!["pl1".into()],
                    ..none.clone()
                },
            ),
            (
                &[
                    ("tile0/gt0/freq0/act_freq", "2400\n"),
                    ("tile0/gt0/freq0/throttle/status", "1\n"),
                    ("tile0/gt0/freq0/throttle/reason_vr_thermalert", "1\n"),
                ],
                GpuState {
                    sm_mhz: Some(2400),
                    throttled: vec!["vr thermalert".into()],
                    ..none.clone()
                },
            ),
            (&[("hwmon/hwmon0/freq1_input", "unknown\n"), ("drm/card0/dev", "1")], none.clone()),
            (&[], none.clone()),
        ] {
            assert_eq!(said(files).unwrap_or_default(), expected, "{files:?}");
        }
        assert_eq!(said(&[]), None);
    }
}
