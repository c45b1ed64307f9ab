//! The environment of a run: machine, device and versions.

use std::path::Path;
use std::sync::OnceLock;
use std::time::SystemTime;

use lathe_record::record::{Environment, Machine};

use crate::gpu::{Gpu, NAGA_VERSION, WGPU_VERSION};

/// The environment of a run on `gpu`, as far as it is known before any measurement. Called when the
/// run starts: the date is that moment.
pub fn environment(gpu: &Gpu) -> Environment {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    Environment {
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        wgpu: WGPU_VERSION.into(),
        os: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        adapter: gpu.adapter.name.clone(),
        driver: gpu.adapter.driver.clone(),
        backend: gpu.adapter.backend.clone(),
        software: gpu.adapter.software,
        runtime_checks: gpu.checks.name().into(),
        command: Some(command_line(words)),
        machine: Some(machine(gpu)),
        ..build()
    }
}

/// The part of an environment that the build decides: versions and sources.
pub fn build() -> Environment {
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Environment {
        commit: known(env!("LATHE_COMMIT")),
        dirty: known(env!("LATHE_DIRTY")).map(|d| d == "true"),
        lathe: env!("CARGO_PKG_VERSION").into(),
        wgsl: Some(wgsl().to_owned()),
        naga: Some(NAGA_VERSION.into()),
        rustc: known(env!("LATHE_RUSTC")),
        build: known(env!("LATHE_BUILD")),
        ..Environment::default()
    }
}

/// A hash of all WGSL in the binary (FNV-1a over names and texts).
fn wgsl() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for kernel in lathe_kernels::kernels() {
            for variant in kernel.variants {
                let text = lathe_kernels::source(kernel.name, variant.name).map_or("", |s| s.text);
                for byte in [kernel.name, variant.name, text].join("\0").bytes() {
                    hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
                }
            }
        }
        format!("{hash:016x}")
    })
}

fn machine(gpu: &Gpu) -> Machine {
    let read = |path: &str| Some(std::fs::read_to_string(path).ok()?.trim().to_owned());
    let model = |text: String| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let counts = name.starts_with("LATHE_") || name.starts_with("WGPU_");
        counts.then(|| (name, without_folders(&value.to_string_lossy()).to_owned()))
    });
    Machine {
        cpu: read("/proc/cpuinfo").and_then(model),
        kernel: read("/proc/sys/kernel/osrelease"),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        vulkan_loader: vulkan_loader(),
        pci: gpu.adapter.pci.clone(),
        card: gpu.card(),
        gpu: gpu.state().into_iter().collect(),
        variables: variables.collect(),
    }
}

/// The loader's version of Vulkan; none on systems whose own API is another.
fn vulkan_loader() -> Option<String> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let mut version = 0_u32;
    // SAFETY: wgpu has loaded the library before, so loading it runs nothing of it; the function is
    // Vulkan's since 1.1, takes where to write one integer and returns a code.
    unsafe {
        let loader = libloading::Library::new("libvulkan.so.1").ok()?;
        let ask: libloading::Symbol<'_, unsafe extern "C" fn(*mut u32) -> i32> =
            loader.get(b"vkEnumerateInstanceVersion\0").ok()?;
        if ask(&raw mut version) != 0 {
            return None;
        }
    }
    let (major, minor, patch) = (version >> 22 & 0x7f, version >> 12 & 0x3ff, version & 0xfff);
    Some(format!("{major}.{minor}.{patch}"))
}

/// A command line for a public record: files are shown by name alone, since the folders they lie in
/// are private to the machine.
pub fn command_line(words: impl Iterator<Item = String>) -> String {
    let shown = words.map(|word| {
        let word = match word.split_once('=') {
            Some((flag, value)) if flag.starts_with('-') => {
                format!("{flag}={}", without_folders(value))
            }
            _ => without_folders(&word).to_owned(),
        };
        match word.contains(char::is_whitespace) {
            true => format!("'{word}'"),
            false => word,
        }
    });
    format!("lathe {}", shown.collect::<Vec<_>>().join(" "))
}

/// The name of a file or folder; other words, such as `gemv/naive`, unchanged.
fn without_folders(word: &str) -> &str {
    let path = Path::new(word);
    let beside = path.parent().is_some_and(|p| !p.as_os_str().is_empty() && p.is_dir());
    let name = path.file_name().and_then(|name| name.to_str());
    name.filter(|_| path.is_absolute() || path.exists() || beside).unwrap_or(word)
}
