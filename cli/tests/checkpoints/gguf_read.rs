//! GGUF files that are read, odd as they are, and the errors of cutting them.

use lathe_harness::model::Keys;
use lathe_harness::model::gguf::writer::GgufWriter;
use lathe_harness::model::gguf::{Value, ValueType};
use lathe_harness::model::{GgmlType, Gguf};

use crate::gguf::{array, find_name};

/// One entry of every value type, arrays, and tensors of several types; its data end with the file.
fn everything() -> Vec<u8> {
    let mut writer = GgufWriter::new();
    writer
        .set_alignment(64)
        .add("general.architecture", "llama")
        .add_raw(b"t.u8", 0, &[200])
        .add_raw(b"t.i8", 1, &[200])
        .add_raw(b"t.u16", 2, &[1, 2])
        .add_raw(b"t.i16", 3, &[0xff, 0xff])
        .add("t.u32", &7u32)
        .add_raw(b"t.i32", 5, &(-5i32).to_le_bytes())
        .add("t.f32", &0.5f32)
        .add("t.bool", &true)
        .add("t.string", "Grüße")
        .add("t.u64", &(1u64 << 40))
        .add_raw(b"t.i64", 11, &(-6i64).to_le_bytes())
        .add_raw(b"t.f64", 12, &0.25f64.to_le_bytes())
        .add("t.strings", &["", "a", "▁b"][..])
        .add("t.floats", &[1.0f32, -2.0][..])
        .add("t.ints", &[3i32, -4][..])
        .add_raw(b"t.bools", 9, &[7, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    writer.add_tensor("a.weight", GgmlType::F32, &[3, 5]);
    writer.add_tensor("b.weight", GgmlType::Q4_0, &[64, 2, 1, 1]);
    writer.add_tensor("scalar", GgmlType::F16, &[]);
    writer.add_tensor("c.weight", GgmlType::Q6K, &[256, 2]);
    writer.zeroed()
}

#[test]
fn truncation_at_every_byte_is_an_error() {
    let bytes = everything();
    Gguf::parse(&bytes).unwrap();
    for len in 0..bytes.len() {
        let error = Gguf::parse(&bytes[..len]).expect_err("a part of a file").to_string();
        assert!(error.starts_with("byte "), "{len}: {error}");
    }
}

#[test]
fn every_value_is_read() {
    let bytes = everything();
    let gguf = Gguf::parse(&bytes).unwrap();
    assert_eq!((gguf.version, gguf.alignment), (3, 64));
    for (key, expected) in [("t.i8", -56), ("t.i16", -1), ("t.i32", -5), ("t.i64", -6)] {
        assert_eq!(gguf.metadata.get(key).and_then(Value::as_integer), Some(expected), "{key}");
    }
    assert_eq!(gguf.u32("t.u8"), Ok(Some(200)));
    assert_eq!(gguf.u32("t.u16"), Ok(Some(513)));
    assert_eq!(gguf.u32("nothing"), Ok(None));
    assert_eq!(gguf.f64("t.f32"), Ok(Some(0.5)));
    assert_eq!(gguf.f64("t.f64"), Ok(Some(0.25)));
    assert_eq!(gguf.bool("t.bool"), Ok(Some(true)));
    assert_eq!(gguf.text("t.string"), Ok(Some("Grüße")));
    assert_eq!(
        gguf.strings("t.strings", &bytes),
        Ok(Some(["", "a", "▁b"].map(str::to_owned).to_vec()))
    );
    assert_eq!(gguf.floats("t.floats", &bytes), Ok(Some(vec![1.0, -2.0])));
    assert_eq!(gguf.integers("t.ints", &bytes), Ok(Some(vec![3, -4])));
    let bools = gguf.array("t.bools").unwrap().unwrap();
    assert_eq!((bools.ty, bools.len, bools.range.len()), (ValueType::Bool, 2, 2));
    let keys: Vec<&str> = gguf.metadata.iter().map(|(key, _)| key).collect();
    assert_eq!(keys[..3], ["general.alignment", "general.architecture", "t.u8"]);
}

#[test]
fn a_getter_of_the_wrong_type_names_key_and_offset() {
    let bytes = everything();
    let gguf = Gguf::parse(&bytes).unwrap();
    let check = |error: lathe_harness::model::Fault, key: &str, part: &str| {
        let at = find_name(&bytes, key);
        let says = error.to_string();
        let begins = format!("byte {at}, metadata `{key}`: ");
        assert!(says.starts_with(&begins) && says.contains(part), "{says}");
    };
    check(
        gguf.u32("t.f32").unwrap_err(),
        "t.f32",
        "expected a whole number from 0 to 4294967295, found f32",
    );
    check(gguf.u32("t.i32").unwrap_err(), "t.i32", "4294967295, found i32 -5");
    check(gguf.u32("t.u64").unwrap_err(), "t.u64", "found u64 1099511627776");
    check(gguf.f64("t.u32").unwrap_err(), "t.u32", "expected a float");
    check(gguf.bool("t.u8").unwrap_err(), "t.u8", "expected true or false, found u8 200");
    check(
        gguf.text("t.strings").unwrap_err(),
        "t.strings",
        "expected a string, found array [3 × string]",
    );
    check(gguf.strings("t.ints", &bytes).unwrap_err(), "t.ints", "expected an array of str");
    check(gguf.floats("t.ints", &bytes).unwrap_err(), "t.ints", "expected an array of floats");
    check(gguf.integers("t.floats", &bytes).unwrap_err(), "t.floats", "expected an array of i32");
    let mut large = GgufWriter::new();
    large.add_raw(b"t.large", 9, &array(ValueType::U32.code(), 1, &[0xff; 4]));
    let large = large.head();
    let error = Gguf::parse(&large).unwrap().integers("t.large", &large).unwrap_err().to_string();
    assert!(error.contains("`t.large`: expected an array of i32"), "{error}");
    // The index outlives the bytes; asked with others it fails and does not panic.
    assert!(gguf.strings("t.strings", &bytes[..40]).is_err());
    assert!(gguf.floats("t.floats", &[]).is_err());
}

#[test]
fn tensors_lie_where_the_writer_put_them() {
    let bytes = everything();
    let gguf = Gguf::parse(&bytes).unwrap();
    let a = gguf.tensor("a.weight").unwrap();
    assert_eq!((a.ty, a.row_len(), a.rows(), a.elements()), (GgmlType::F32, 3, 5, 15));
    assert_eq!((a.range.start as u64, a.range.len()), (gguf.data_start, 60));
    let b = gguf.tensor("b.weight").unwrap();
    assert_eq!((b.dims.as_slice(), b.range.len()), (&[64, 2, 1, 1][..], 4 * 18));
    assert_eq!(b.range.start - a.range.start, 64);
    let scalar = gguf.tensor("scalar").unwrap();
    assert_eq!((scalar.row_len(), scalar.rows(), scalar.range.len()), (1, 1, 2));
    let c = gguf.tensor("c.weight").unwrap();
    assert_eq!((c.range.len(), c.range.end), (2 * 210, bytes.len()));
    assert_eq!(gguf.tensor("d.weight"), None);
}

fn zero_sized() -> Vec<u8> {
    let mut writer = GgufWriter::new();
    writer.add_tensor("none", GgmlType::F32, &[0]);
    writer.add_tensor("no_rows", GgmlType::Q4K, &[256, 0]);
    writer.add_tensor("some", GgmlType::F32, &[2]);
    writer.add_tensor("no_columns", GgmlType::F16, &[0, 7, u64::from(u32::MAX)]);
    let mut bytes = writer.zeroed();
    // The last has no data, but its offset must lie in the file.
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    bytes
}

#[test]
fn zero_sized_dimensions_load() {
    let gguf = Gguf::parse(&zero_sized()).unwrap();
    for (name, elements) in [("none", 0), ("no_rows", 0), ("no_columns", 0), ("some", 2)] {
        let tensor = gguf.tensor(name).unwrap();
        assert_eq!(tensor.elements(), elements, "{name}");
        assert_eq!(tensor.range.len() as u64, 4 * elements, "{name}");
    }
}

#[test]
fn order_and_gaps_are_free() {
    let mut writer = GgufWriter::new();
    writer.add_tensor_raw("last", 0, &[4], 128);
    writer.add_tensor_raw("first", 0, &[4], 32);
    let mut bytes = writer.head();
    bytes.resize(bytes.len() + 144, 0);
    let gguf = Gguf::parse(&bytes).unwrap();
    assert!(gguf.tensors[0].range.start > gguf.tensors[1].range.end);
}

fn bare() -> Vec<u8> {
    GgufWriter::new().head()[..24].to_vec()
}

#[test]
fn a_file_of_nothing_is_valid() {
    let gguf = Gguf::parse(&bare()).unwrap();
    assert!(gguf.metadata.is_empty() && gguf.tensors.is_empty());
}

fn version_2() -> Vec<u8> {
    let mut bytes = everything();
    bytes[4] = 2;
    bytes
}

#[test]
fn version_2_is_read_like_3() {
    let two = Gguf::parse(&version_2()).unwrap();
    let three = Gguf::parse(&everything()).unwrap();
    assert_eq!((two.version, two.tensors), (2, three.tensors));
}

/// Sound files, for the fuzz target `gguf`.
pub(crate) fn sound() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    [
        ("valid everything", everything()),
        ("valid zero sized", zero_sized()),
        ("valid bare", bare()),
        ("valid version 2", version_2()),
    ]
    .into_iter()
}
