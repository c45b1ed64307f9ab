//! Files that a user names are read here: regular ones alone, and no longer than their kind can
//! be. A pipe would be waited for without end, and a device read until memory is gone. And they are
//! written here: whole, or not at all.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::Serializer;

/// Longest WGSL file, mapping, manifest or list of token ids of a candidate.
pub const TEXT: u64 = 4 << 20;

/// Longest store of tuned choices, record, or text that a model reads.
pub const DATA: u64 = 1 << 30;

/// Opens a regular file.
///
/// # Errors
/// What the system says; or what the path names instead of a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // Asked before it is opened: to open a pipe is to wait for its other end.
    let metadata = fs::metadata(path)?;
    if metadata.is_file() {
        return File::open(path);
    }
    let (kind, what) = match metadata.is_dir() {
        true => (io::ErrorKind::IsADirectory, "is a directory"),
        false => (io::ErrorKind::InvalidInput, "is a pipe or a device, not a regular file"),
    };
    Err(io::Error::new(kind, what))
}

/// The bytes of a regular file.
///
/// # Errors
/// Errors of [`open`]; or that there are more than `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_from(open(path)?, most)
}

/// The text of a regular file.
///
/// # Errors
/// Errors of [`read`]; or the offset of the first byte that is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    text(read(path, most)?)
}

/// Writes a file that is not there yet.
///
/// # Errors
/// What the system says, such as that there is one. Of what could not be written nothing is left.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = File::create_new(path)?.write_all(bytes);
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(path);
    }
    written
}

/// Writes a file, or puts it in the place of one.
///
/// # Errors
/// What the system says. The old file is then still there.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A device or a pipe takes what it is given and has no old content.
    if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        return fs::write(path, bytes);
    }
    // What a link names is replaced, and the link stays.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut partial = Partial::create(&target)?;
    partial.file.write_all(bytes)?;
    partial.finish(&target)
}

/// A temporary name of this process in the folder of a file.
fn beside(path: &Path, what: &str) -> io::Result<PathBuf> {
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(path.file_name().ok_or(io::ErrorKind::InvalidFilename)?);
    hidden.push(format!(".{}.{what}", std::process::id()));
    Ok(path.with_file_name(hidden))
}

/// A file under a temporary name that removes itself unless it is finished.
#[derive(Debug)]
pub struct Partial {
    path: PathBuf,
    /// The file, open for writing.
    pub file: File,
    finished: bool,
}

impl Partial {
    /// Creates a temporary file in the folder of `target`.
    ///
    /// # Errors
    /// That no file can be created there.
    pub fn create(target: &Path) -> io::Result<Self> {
        let path = beside(target, "partial")?;
        let file = File::create_new(&path)?;
        Ok(Self { path, file, finished: false })
    }

    /// Gives it the name `target`, whose file it replaces.
    ///
    /// # Errors
    /// Errors of the renaming; then it removes itself.
    pub fn finish(mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.finished {
            // The first error is the one to report; a leftover is only untidy.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Reads a reader to its end.
///
/// # Errors
/// Errors of the reader; or that there are more than `most` bytes.
pub fn read_from(reader: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One more tells a file that is too long from one that just fits.
    reader.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::other(format!("has more than {most} bytes"))),
        false => Ok(bytes),
    }
}

/// Bytes as text.
///
/// # Errors
/// The offset of the first byte that is not UTF-8.
pub fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|e| {
        let offset = e.utf8_error().valid_up_to();
        io::Error::new(io::ErrorKind::InvalidData, format!("byte {offset} is not UTF-8"))
    })
}

/// Serialises a path as text; bytes that are not UTF-8 are replaced.
///
/// # Errors
/// Errors of the serializer.
pub fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_a_bounded_length_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("text");
        std::fs::write(&path, "four").expect("a file");
        assert_eq!(read_text(&path, 4).expect("four bytes"), "four");
        assert_eq!(read(&path, 3).expect_err("too long").to_string(), "has more than 3 bytes");
        let folder = read(folder.path(), 4).expect_err("no file");
        assert_eq!(folder.to_string(), "is a directory");
        assert_eq!(read(&path.join("x"), 4).map_err(|e| e.kind()).ok(), None);
        #[cfg(unix)]
        for device in ["/dev/zero", "/dev/null"] {
            let refusal = read(Path::new(device), 4).expect_err("a device");
            assert_eq!(refusal.to_string(), "is a pipe or a device, not a regular file");
        }
    }

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("text");
        for text in ["first", "second"] {
            replace(&path, text.as_bytes()).expect("a file");
            assert_eq!(std::fs::read_to_string(&path).expect("a file"), text);
        }
        assert!(write_new(&path, b"third").is_err());
        // There is no room for a longer name beside it.
        let long = folder.path().join("x".repeat(250));
        std::fs::write(&long, "old").expect("a file");
        assert!(replace(&long, b"new").is_err());
        assert_eq!(std::fs::read_to_string(&long).expect("a file"), "old");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 2);
        #[cfg(unix)]
        {
            let link = folder.path().join("link");
            std::os::unix::fs::symlink(&path, &link).expect("a link");
            replace(&link, b"through").expect("a file");
            assert!(link.is_symlink());
            assert_eq!(std::fs::read_to_string(&path).expect("a file"), "through");
            replace(Path::new("/dev/null"), b"gone").expect("a device");
            assert!(
                replace(Path::new("/dev/full"), b"no room").is_err()
                    || cfg!(not(target_os = "linux"))
            );
        }
    }

    #[test]
    fn an_offset_says_where_text_ends() {
        let refusal = text(b"ab\xff".to_vec()).expect_err("no text");
        assert_eq!(refusal.to_string(), "byte 2 is not UTF-8");
    }
}
