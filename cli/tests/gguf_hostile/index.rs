//! Files whose index is refused.

use lathe_harness::model::gguf::writer::GgufWriter;
use lathe_harness::model::{GgmlType, Gguf};

use crate::{Case, assert_says, find, find_name};

const U8: u32 = 0;
const U32: u32 = 4;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;
const U64: u32 = 10;

/// A key whose value the case breaks, and a tensor that it breaks.
const KEY: &str = "test.bad";
const TENSOR: &str = "test.weight";

fn refused(bytes: &[u8], says: &[String]) {
    let error = Gguf::parse(bytes).expect_err("the file is broken").to_string();
    assert_says(&error, says);
}

fn writer() -> GgufWriter {
    let mut writer = GgufWriter::new();
    writer.add_str("general.architecture", "llama");
    writer
}

fn valid() -> Vec<u8> {
    let mut writer = writer();
    writer.add_tensor(TENSOR, GgmlType::F32, &[8, 2]);
    writer.zeroed()
}

fn says(offset: usize, parts: &[&str]) -> Vec<String> {
    let mut says = vec![format!("byte {offset},")];
    says.extend(parts.iter().map(ToString::to_string));
    says
}

fn patched(offset: usize, patch: &[u8], parts: &[&str]) -> Case {
    let mut bytes = valid();
    bytes[offset..offset + patch.len()].copy_from_slice(patch);
    (bytes, says(offset, parts))
}

fn version(version: u32, part: &str) -> Case {
    patched(4, &version.to_le_bytes(), &["header field `version`", part])
}

/// The entry [`KEY`] with this value; the message speaks of a byte `skip` into the value.
fn value(type_code: u32, bytes: &[u8], skip: usize, part: &str) -> Case {
    let mut writer = writer();
    let file = writer.add_raw(KEY.as_bytes(), type_code, bytes).zeroed();
    let at = find_name(&file, KEY) + 8 + KEY.len() + 4 + skip;
    (file, says(at, &[&format!("metadata `{KEY}`"), part]))
}

/// An array value: element type, length, elements.
fn array(type_code: u32, len: u64, elements: &[u8]) -> Vec<u8> {
    [&type_code.to_le_bytes()[..], &len.to_le_bytes(), elements].concat()
}

fn alignment(type_code: u32, value: &[u8], part: &str) -> Case {
    const ALIGNMENT: &str = "general.alignment";
    let file = writer().add_raw(ALIGNMENT.as_bytes(), type_code, value).zeroed();
    let at = find_name(&file, ALIGNMENT);
    (file, says(at, &["metadata `general.alignment`", part]))
}

fn alignment_u32(value: u32) -> Case {
    let part = format!("the alignment {value} is not a power of two");
    alignment(U32, &value.to_le_bytes(), &part)
}

/// The tensor [`TENSOR`] as it stands, behind 64 bytes of data of another; the message speaks of a
/// byte `skip` behind its name.
fn tensor(type_code: u32, dims: &[u64], offset: u64, skip: usize, part: &str) -> Case {
    let mut writer = writer();
    writer.add_tensor("other.weight", GgmlType::F32, &[16]);
    writer.add_tensor_raw(TENSOR, type_code, dims, offset);
    let file = writer.zeroed();
    let at = find_name(&file, TENSOR) + 8 + TENSOR.len() + skip;
    (file, says(at, &[&format!("tensor `{TENSOR}`"), part]))
}

/// Bytes of n_dims, of a dimension and of the type in the tensor list.
const N_DIMS: usize = 4;
const DIM: usize = 8;
const TYPE: usize = 4;

cases! { refused;
    empty_file => (vec![], says(0, &["header field `magic`", "ends too early"]));
    bad_magic => patched(0, b"GGJT", &["header field `magic`", "begins with \"GGJT\""]);
    big_endian => {
        let mut case = version(3, "big-endian");
        case.0[4..8].reverse();
        case
    };
    version_0 => version(0, "version 0 is not supported");
    version_1 => version(1, "version 1 is not supported");
    version_4 => version(4, "version 4 is not supported");
    version_max => version(u32::MAX, "version 4294967295 is not supported");
    tensor_count_beyond_file => {
        let count = (1u64 << 40).to_le_bytes();
        patched(8, &count, &["header field `tensor_count`", "1099511627776 entries"])
    };
    metadata_count_beyond_file => {
        let count = u64::MAX.to_le_bytes();
        patched(16, &count, &["header field `metadata_kv_count`", "beyond the file"])
    };
    metadata_count_beyond_entries => {
        // Small enough for the size of the file, yet the tensor list is no metadata.
        let mut bytes = valid();
        bytes[16] = 3;
        (bytes, vec!["byte ".into(), "metadata".into()])
    };
    tensor_count_beyond_tensors => {
        let mut bytes = valid();
        bytes[8] = 3;
        (bytes, vec!["byte ".into(), "name of tensor 1".into(), "the name is empty".into()])
    };
    key_length_beyond_file => {
        patched(24, &5000u64.to_le_bytes(), &["key of metadata entry 0", "5000 bytes"])
    };
    key_length_overflows => {
        patched(24, &u64::MAX.to_le_bytes(), &["key of metadata entry 0", "beyond the file"])
    };
    key_empty => {
        let file = writer().add_raw(b"", U8, &[0]).add_u32("after", 0).zeroed();
        let at = find_name(&file, "after") - 13;
        (file, says(at, &["key of metadata entry 1", "the name is empty"]))
    };
    key_too_long => {
        let file = writer().add_u32(&"k".repeat(65536), 0).zeroed();
        let at = find(&file, b"kkkk") - 8;
        (file, says(at, &["key of metadata entry 1", "65536 bytes, more than the 65535"]))
    };
    key_not_utf8 => {
        let file = writer().add_raw(b"ab\xff", U8, &[0]).zeroed();
        let at = find(&file, b"ab\xff");
        (file, says(at, &["key of metadata entry 1", "not UTF-8 (valid for 2 bytes)"]))
    };
    key_twice => {
        let file = writer().add_u32(KEY, 1).add_u32("between", 0).add_u32(KEY, 1).zeroed();
        let first = find_name(&file, KEY);
        let second = first + 8 + KEY.len() + find_name(&file[first + 8 + KEY.len()..], KEY);
        (file, says(second, &[&format!("metadata `{KEY}`"), &format!("before, at byte {first}")]))
    };
    value_type_unknown => {
        let mut case = value(13, &[0; 16], 0, "unknown value type 13");
        // The type itself is at fault, and stands before the value.
        let at = find_name(&case.0, KEY) + 8 + KEY.len();
        case.1[0] = format!("byte {at},");
        case
    };
    bool_neither_0_nor_1 => value(BOOL, &[2], 0, "a bool is 0 or 1, not 2");
    string_beyond_file => value(STRING, &1000u64.to_le_bytes(), 0, "a string of 1000 bytes");
    string_length_overflows => {
        value(STRING, &(u64::MAX - 7).to_le_bytes(), 0, "beyond the file")
    };
    string_not_utf8 => value(STRING, b"\x02\0\0\0\0\0\0\0\xc3\x28", 8, "not UTF-8");
    array_nested => {
        value(ARRAY, &array(ARRAY, 1, &array(U8, 1, &[0])), 0, "arrays of arrays")
    };
    array_of_unknown_type => value(ARRAY, &array(77, 0, &[]), 0, "unknown value type 77");
    array_beyond_file => {
        value(ARRAY, &array(U32, 1000, &[0; 8]), 4, "an array of 1000 u32 is beyond the file")
    };
    array_length_overflows => {
        value(ARRAY, &array(U64, 1 << 61, &[0; 8]), 4, "an array of 2305843009213693952 u64")
    };
    array_of_strings_beyond_file => {
        value(ARRAY, &array(STRING, 1 << 40, &[0; 64]), 4, "an array of 1099511627776 string")
    };
    array_string_beyond_file => {
        value(ARRAY, &array(STRING, 1, &900u64.to_le_bytes()), 12, "a string of 900 bytes")
    };
    array_string_not_utf8 => {
        value(ARRAY, &array(STRING, 1, b"\x01\0\0\0\0\0\0\0\xff"), 20, "not UTF-8")
    };
    array_bool_neither_0_nor_1 => value(ARRAY, &array(BOOL, 3, &[0, 1, 9]), 14, "not 9");
    alignment_of_wrong_type => alignment(U64, &32u64.to_le_bytes(), "the value is u64, expected u32");
    alignment_0 => alignment_u32(0);
    alignment_no_power_of_two => alignment_u32(24);
    alignment_too_small => alignment_u32(4);
    alignment_absurd => alignment_u32(1 << 31);
    n_dims_5 => tensor(0, &[1; 5], 64, 0, "5 dimensions");
    n_dims_max => {
        let mut case = tensor(0, &[1], 64, 0, "4294967295 dimensions");
        let at = find_name(&case.0, TENSOR) + 8 + TENSOR.len();
        case.0[at..at + 4].copy_from_slice(&[0xff; 4]);
        case
    };
    elements_overflow => tensor(0, &[1 << 32, 1 << 32], 64, N_DIMS, "overflows");
    elements_overflow_i64 => tensor(24, &[1 << 63], 64, N_DIMS, "overflows");
    elements_overflow_behind_a_zero => {
        tensor(0, &[0, 1 << 40, 1 << 40], 64, N_DIMS, "overflows")
    };
    bytes_overflow => tensor(28, &[1 << 62], 64, N_DIMS, "overflows");
    tensor_type_unknown => tensor(99, &[8], 64, N_DIMS + DIM, "unknown tensor type 99");
    tensor_type_removed => {
        tensor(4, &[32], 64, N_DIMS + DIM, "tensor type 4 (Q4_2) was removed")
    };
    row_no_multiple_of_block => {
        tensor(2, &[48, 2], 64, N_DIMS, "rows of 48 values do not divide into Q4_0 blocks of 32")
    };
    row_no_multiple_of_superblock => {
        // As many values as a superblock, but not in a row.
        tensor(12, &[128, 2], 64, N_DIMS, "rows of 128 values do not divide into Q4_K blocks of 256")
    };
    offset_misaligned => {
        tensor(0, &[1], 40, N_DIMS + DIM + TYPE, "offset 40 is not a multiple of the alignment 32")
    };
    offset_past_end => {
        tensor(0, &[1], 64, N_DIMS + DIM + TYPE, "(4 bytes at offset 64 of the data) reach past")
    };
    offset_overflows => {
        tensor(0, &[1], u64::MAX - 31, N_DIMS + DIM + TYPE, "reach past the end")
    };
    offset_past_end_without_data => {
        tensor(0, &[0], 96, N_DIMS + DIM + TYPE, "(0 bytes at offset 96 of the data) reach past")
    };
    tensors_overlap => {
        let (file, _) = tensor(0, &[4], 32, 0, "");
        let data = file.len() - 64;
        let parts = [&format!("tensor `{TENSOR}`"), "overlap those of tensor `other.weight`"];
        (file, says(data + 32, &parts))
    };
    tensors_at_the_same_place => {
        let (file, _) = tensor(0, &[16], 0, 0, "");
        (file, vec!["tensor `".into(), "overlap those of tensor `".into()])
    };
    tensor_twice => {
        let mut writer = writer();
        writer.add_tensor(TENSOR, GgmlType::F32, &[1]);
        writer.add_tensor("other.weight", GgmlType::F32, &[1]);
        writer.add_tensor(TENSOR, GgmlType::F32, &[1]);
        let file = writer.zeroed();
        let second = find_name(&file, "other.weight") + 8 + "other.weight".len() + 24;
        let first = find_name(&file, TENSOR);
        (file, says(second, &[&format!("tensor `{TENSOR}`"), &format!("before, at byte {first}")]))
    };
    tensor_name_empty => {
        let mut writer = writer();
        writer.add_tensor("", GgmlType::F32, &[1]);
        let file = writer.zeroed();
        let at = find_name(&file, "llama") + 8 + "llama".len();
        (file, says(at, &["name of tensor 0", "the name is empty"]))
    };
    tensor_name_too_long => {
        let mut writer = writer();
        writer.add_tensor(&"n".repeat(65), GgmlType::F32, &[1]);
        let file = writer.zeroed();
        let at = find(&file, b"nnnn") - 8;
        (file, says(at, &["name of tensor 0", "65 bytes, more than the 64"]))
    };
    tensor_name_not_utf8 => {
        let mut bytes = valid();
        let at = find(&bytes, TENSOR.as_bytes());
        bytes[at] = 0x80;
        (bytes, says(at, &["name of tensor 0", "not UTF-8 (valid for 0 bytes)"]))
    };
}
