//! Microsoft's DirectX shader compiler, called through the library that it comes as.
//!
//! Its interfaces are COM's: an object begins with a pointer to a table of functions, of which the
//! first three are those of `IUnknown`. On Linux and macOS builds up to 1.7 have C++ destructors
//! behind these three, which take two places of the table. Such a build is told by the symbol that
//! the destructor has.

use std::ffi::{c_char, c_void};
use std::fs;
use std::path::Path;
use std::ptr;

use libloading::Library;

/// Shader model of wgpu's pipelines at its best.
const PROFILE: &str = "cs_6_6";

/// Options of wgpu's Direct3D 12 back end. A later version of HLSL refuses conditions that are
/// vectors.
const OPTIONS: [&str; 4] = ["-enable-16bit-types", "-HV", "2018", "-Wno-parentheses-equality"];

#[repr(C)]
struct Guid(u32, u16, u16, [u8; 8]);

static COMPILER: Guid =
    Guid(0x73e2_2d93, 0xe6ce, 0x47f3, [0xb5, 0xbf, 0xf0, 0x66, 0x4f, 0x39, 0xc1, 0xb0]);
static COMPILER_3: Guid =
    Guid(0x228b_4687, 0x5a6a, 0x4730, [0x90, 0x0c, 0x97, 0x02, 0xb2, 0x20, 0x3f, 0x54]);
static RESULT: Guid =
    Guid(0xcedb_484a, 0xd4e9, 0x445a, [0xb9, 0x91, 0xca, 0x21, 0xca, 0x15, 0x7d, 0xc2]);

/// `DxcBuffer`.
#[repr(C)]
struct Buffer {
    pointer: *const c_char,
    bytes: usize,
    code_page: u32,
}

const UTF_8: u32 = 65001;

#[cfg(windows)]
type Wide = u16;
#[cfg(not(windows))]
type Wide = u32;

type Object = *mut c_void;
type Create = unsafe extern "system" fn(*const Guid, *const Guid, *mut Object) -> i32;
type Release = unsafe extern "system" fn(Object) -> u32;
type Compile = unsafe extern "system" fn(
    Object,
    *const Buffer,
    *const *const Wide,
    u32,
    Object,
    *const Guid,
    *mut Object,
) -> i32;
type Status = unsafe extern "system" fn(Object, *mut i32) -> i32;
type Output = unsafe extern "system" fn(Object, *mut Object) -> i32;
type Pointer = unsafe extern "system" fn(Object) -> *const u8;
type Size = unsafe extern "system" fn(Object) -> usize;

/// The compiler.
pub struct Dxc {
    compiler: Unknown,
    /// Places of a table before an interface's own functions.
    base: usize,
    /// Unloaded last.
    _library: Library,
}

/// A COM object, released at the end.
struct Unknown(Object);

impl Unknown {
    /// Takes over a reference.
    fn new(object: Object, what: &str) -> Result<Self, String> {
        match object.is_null() {
            true => Err(format!("DXC gives no {what}")),
            false => Ok(Self(object)),
        }
    }

    /// The function at an index of the object's table.
    ///
    /// # Safety
    /// The function has the type `F`, which is a pointer to a function.
    unsafe fn function<F: Copy>(&self, index: usize) -> F {
        // SAFETY: an object begins with a pointer to its table, whose entries are functions; the
        // caller answers for the type.
        unsafe {
            let table = *self.0.cast::<*const *const c_void>();
            std::mem::transmute_copy::<*const c_void, F>(&*table.add(index))
        }
    }
}

impl Drop for Unknown {
    fn drop(&mut self) {
        // SAFETY: the third function of all objects; the reference is this one's own.
        unsafe { self.function::<Release>(2)(self.0) };
    }
}

impl Dxc {
    /// Loads the compiler from a library, such as `dxcompiler.dll` or `libdxcompiler.so`.
    ///
    /// # Errors
    /// The file is no such library, in words.
    pub fn open(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let bytes = fs::read(path).map_err(|e| format!("{shown}: {e}"))?;
        let symbol = b"_ZN8IUnknownD2Ev";
        let has_destructors = bytes.windows(symbol.len()).any(|window| window == symbol);
        drop(bytes);
        // With a folder, so that it is not searched for elsewhere.
        let path = path.canonicalize().map_err(|e| format!("{shown}: {e}"))?;
        // SAFETY: the user names the library; loading it runs nothing but its initialisation.
        let library = unsafe { Library::new(path) }.map_err(|e| format!("{shown}: {e}"))?;
        let mut object = ptr::null_mut();
        // SAFETY: the function has this signature in all versions; the object is written where it
        // returns no error, and is null else.
        let code = unsafe {
            let create = library.get::<Create>(b"DxcCreateInstance\0");
            let create = create.map_err(|e| format!("{shown}: no DXC: {e}"))?;
            create(&raw const COMPILER, &raw const COMPILER_3, &raw mut object)
        };
        if code < 0 {
            return Err(format!("{shown}: DXC gives no compiler ({code:#x})"));
        }
        let compiler = Unknown::new(object, "compiler")?;
        Ok(Self { compiler, base: if has_destructors { 5 } else { 3 }, _library: library })
    }

    /// Compiles an entry point of a text.
    ///
    /// # Errors
    /// DXC's messages.
    pub fn compile(&self, text: &str, entry: &str) -> Result<(), String> {
        let words = ["-E", entry, "-T", PROFILE].into_iter().chain(OPTIONS);
        let owned: Vec<Vec<Wide>> = words.map(wide).collect();
        let words: Vec<_> = owned.iter().map(|word| word.as_ptr()).collect();
        let buffer = Buffer { pointer: text.as_ptr().cast(), bytes: text.len(), code_page: UTF_8 };
        let mut object = ptr::null_mut();
        // SAFETY: `IDxcCompiler3` has `Compile` first. Buffer and words live through the call, and
        // it needs no handler of includes.
        let code = unsafe {
            self.compiler.function::<Compile>(self.base)(
                self.compiler.0,
                &raw const buffer,
                words.as_ptr(),
                words.len() as u32,
                ptr::null_mut(),
                &raw const RESULT,
                &raw mut object,
            )
        };
        if code < 0 {
            return Err(format!("DXC fails ({code:#x})"));
        }
        let result = Unknown::new(object, "result")?;
        let (mut status, mut errors) = (-1, ptr::null_mut());
        // SAFETY: `IDxcOperationResult` has `GetStatus`, `GetResult` and `GetErrorBuffer`.
        unsafe {
            result.function::<Status>(self.base)(result.0, &raw mut status);
            result.function::<Output>(self.base + 2)(result.0, &raw mut errors);
        }
        if status >= 0 {
            if !errors.is_null() {
                drop(Unknown(errors));
            }
            return Ok(());
        }
        let errors = Unknown::new(errors, "message")?;
        // SAFETY: `IDxcBlob` has `GetBufferPointer` and `GetBufferSize`; the bytes live as long as
        // the blob.
        let bytes = unsafe {
            let start = errors.function::<Pointer>(self.base)(errors.0);
            let size = errors.function::<Size>(self.base + 1)(errors.0);
            if start.is_null() { &[] } else { std::slice::from_raw_parts(start, size) }
        };
        let text = String::from_utf8_lossy(bytes);
        Err(text.trim_end_matches('\0').trim_end().to_owned())
    }
}

/// A word as the compiler reads it.
fn wide(word: &str) -> Vec<Wide> {
    #[cfg(windows)]
    let units = word.encode_utf16();
    #[cfg(not(windows))]
    let units = word.chars().map(u32::from);
    units.chain([0]).collect()
}
