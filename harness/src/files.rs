//! Files that a user names are read here: regular ones alone, and no longer than their kind can
//! be. A pipe would be waited for without end, and a device read until memory is gone.

use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::path::Path;

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
    regular(&std::fs::metadata(path)?)?;
    File::open(path)
}

/// The bytes of a regular file.
///
/// # Errors
/// As [`open`]; or that there are more than `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_from(open(path)?, most)
}

/// The text of a regular file.
///
/// # Errors
/// As [`read`]; or the offset of the first byte that is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    text(read(path, most)?)
}

/// Writes a file that is not there yet.
///
/// # Errors
/// What the system says, such as that there is one.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    File::create_new(path)?.write_all(bytes)
}

/// All that a reader has.
///
/// # Errors
/// As the reader; or that there are more than `most` bytes.
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

/// Serialises a path as text, what is not UTF-8 in it replaced: a report says what it can.
///
/// # Errors
/// As the serializer.
pub fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

fn regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let (kind, what) = match metadata.is_dir() {
        true => (io::ErrorKind::IsADirectory, "is a directory"),
        false => (io::ErrorKind::InvalidInput, "is a pipe or a device, not a regular file"),
    };
    Err(io::Error::new(kind, what))
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
    fn an_offset_says_where_text_ends() {
        let refusal = text(b"ab\xff".to_vec()).expect_err("no text");
        assert_eq!(refusal.to_string(), "byte 2 is not UTF-8");
    }
}
