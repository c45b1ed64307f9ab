//! Bounds on what a text of the user's may take to be compiled. A front end or a driver that takes
//! hours or all memory cannot be stopped from inside; a thread beside it ends the process, where
//! the process is one that may be ended: the command runs users' files in such a child.

use std::process::{abort, exit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longest that one text may compile.
const TIME: Duration = Duration::from_secs(60);

/// Most memory that a text may take to compile.
const MEMORY: u64 = 4 << 30;

/// How often the thread looks.
const TICK: Duration = Duration::from_millis(50);

/// What is compiling.
#[derive(Debug)]
struct Section {
    id: u64,
    what: String,
    since: Instant,
    memory: u64,
}

/// What is compiling now, once [`watch`] has begun.
static SECTIONS: OnceLock<Mutex<Vec<Section>>> = OnceLock::new();

/// Tells sections apart.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Ends this process with `code` when a text takes too much, after `say` has heard why; and when
/// its parent is gone, which waits for it.
pub fn watch(code: i32, say: fn(&str)) {
    let sections = SECTIONS.get_or_init(Mutex::default);
    let parent = parent();
    thread::spawn(move || {
        loop {
            thread::sleep(TICK);
            if self::parent() != parent {
                end(code);
            }
            let sections = sections.lock().unwrap_or_else(PoisonError::into_inner);
            for section in sections.iter() {
                if let Some(reason) = beyond(section, memory()) {
                    say(&format!("{}: {reason}", section.what));
                    end(code);
                }
            }
        }
    });
}

/// Compiles a text under the bounds, where this process is watched.
pub fn compile<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let Some(sections) = SECTIONS.get() else { return work() };
    let lock = || sections.lock().unwrap_or_else(PoisonError::into_inner);
    let (id, since) = (NEXT.fetch_add(1, Ordering::Relaxed), Instant::now());
    lock().push(Section { id, what: what.to_owned(), since, memory: memory() });
    let done = work();
    lock().retain(|section| section.id != id);
    done
}

/// Which bound a section is beyond.
fn beyond(section: &Section, memory: u64) -> Option<String> {
    if section.since.elapsed() > TIME {
        return Some(format!("does not compile within {} s", TIME.as_secs()));
    }
    let taken = memory.saturating_sub(section.memory);
    (taken > MEMORY).then(|| format!("takes more than {} GiB to compile", MEMORY >> 30))
}

/// Ends the process, whatever its other threads hold.
fn end(code: i32) -> ! {
    thread::spawn(move || exit(code));
    thread::sleep(Duration::from_secs(2));
    abort()
}

/// Bytes of this process that are of no file; 0 where the system does not say.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

#[cfg(unix)]
fn parent() -> u32 {
    std::os::unix::process::parent_id()
}

#[cfg(not(unix))]
fn parent() -> u32 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_memory_are_bounded() {
        let now = Instant::now();
        let section = |since| Section { id: 0, what: String::new(), since, memory: 1 << 30 };
        assert_eq!(beyond(&section(now), 5 << 30), None);
        let reason = beyond(&section(now), (5 << 30) + 1).expect("too much memory");
        assert_eq!(reason, "takes more than 4 GiB to compile");
        let begun = now.checked_sub(TIME + Duration::from_secs(1)).expect("a time before");
        let reason = beyond(&section(begun), 0).expect("too much time");
        assert_eq!(reason, "does not compile within 60 s");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_is_seen() {
        // Other tests take and give back theirs meanwhile.
        let held = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(memory() >= 64 << 20, "{} bytes held", held.len());
    }
}
