//! Reflection of a WGSL source, read from naga instead of being restated.

use naga::back::pipeline_constants::process_overrides;
use naga::valid::{Capabilities as Caps, GlobalUse, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Block, Module, Statement, StorageAccess};

use crate::adapter::{CooperativeMatrix, MatrixScalar};
use crate::descriptor::Constants;
use crate::prune::prune;
use crate::tokens::{Declaration, declarations, tokens};
use crate::unroll::{specialise, unroll};

/// A parsed and validated source with its properties as far as the harness needs them.
#[derive(Debug)]
pub struct Reflection {
    /// naga's module.
    pub module: Module,
    /// naga's analysis of it.
    pub info: ModuleInfo,
    /// Storage buffers in binding order.
    pub buffers: Vec<Buffer>,
    /// Overrides by name.
    pub overrides: Vec<(String, Default)>,
    /// Entry points.
    pub entries: Vec<Entry>,
    /// Subgroup operations are used.
    pub needs_subgroup: bool,
    /// 16-bit float types are used.
    pub needs_f16: bool,
    /// Cooperative matrices that are multiplied; empty where none are used.
    pub needs_cooperative_matrix: Vec<CooperativeMatrix>,
}

/// The value of an override that is not set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Default {
    /// None: it must be set.
    Required,
    /// A literal.
    Literal(f64),
    /// Computed from other overrides; naga does that.
    Derived,
}

/// A storage buffer variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Variable name.
    pub name: String,
    /// `@group`.
    pub group: u32,
    /// `@binding`.
    pub binding: u32,
    /// Declared `read_write`.
    pub writable: bool,
    /// Bytes that it holds at least: of a runtime-sized array, one element.
    pub least_bytes: u64,
    /// Fields of a uniform buffer; `None` for a storage buffer. Built-in kernels have none.
    pub uniform: Option<Vec<Field>>,
}

/// A field of a uniform struct; or the whole of a uniform that is no struct, without a name. Each
/// field of a nested struct is one, `outer.inner` or `array[0].inner`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name.
    pub name: String,
    /// Byte offsets of its numbers in the order in which WGSL constructs it: one of a scalar,
    /// several of a vector, a matrix (by columns) or an array.
    pub offsets: Vec<u32>,
    /// Their type.
    pub scalar: Scalar,
}

/// Types that numbers of a uniform may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// `u32`
    U32,
    /// `i32`
    I32,
    /// `f32`
    F32,
}

/// An entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Function name.
    pub name: String,
    /// Indices into [`Reflection::buffers`] of the buffers it uses.
    pub buffers: Vec<usize>,
    /// Indices of the buffers that it writes, whatever access they declare.
    pub writes: Vec<usize>,
    /// True if it reads `num_workgroups`, so that it can find its place in a grid folded into two
    /// dimensions.
    pub unfolds: bool,
}

/// A fault of a source.
#[derive(Debug, thiserror::Error)]
pub enum ReflectError {
    /// naga refuses it; the text is naga's annotated source.
    #[error("{0}")]
    Wgsl(String),
    /// An import, a requirement or a name of its own that a text does not get right.
    #[error("{0}")]
    Link(String),
    /// A text does not fit its declaration, or has a resource that kernels do not use.
    #[error("{path}: {reason}")]
    User {
        /// File.
        path: String,
        /// The mismatch.
        reason: String,
    },
    /// naga 30 cannot apply overrides when an array length is an expression of them.
    #[error(
        "{0}: an array length is an expression of overrides; give the expression a name: \
         `override SLOTS: u32 = WG / 4u;`, `array<f32, SLOTS>`"
    )]
    Anonymous(String),
    /// An override has no value.
    #[error("override `{0}` has neither a default nor a value in the shape")]
    Override(String),
    /// Overrides could not be applied.
    #[error("{0}")]
    Constants(String),
}

/// Returns true if a block, or one inside it, has such a statement.
pub(crate) fn any_statement(block: &Block, is: &impl Fn(&Statement) -> bool) -> bool {
    let any = |block| any_statement(block, is);
    block.iter().any(|statement| {
        is(statement)
            || match statement {
                Statement::Block(inner) => any(inner),
                Statement::If { accept, reject, .. } => any(accept) || any(reject),
                Statement::Switch { cases, .. } => cases.iter().any(|case| any(&case.body)),
                Statement::Loop { body, continuing, .. } => any(body) || any(continuing),
                _ => false,
            }
    })
}

/// Largest variable that every implementation of WGSL holds in the private address space. Drivers
/// may allocate it for all invocations of a device at once, or crash.
const MOST_PRIVATE: u64 = 65_535;

impl Reflection {
    /// Parses, validates and reads `text`; `path` only names it in errors.
    pub fn of(text: &str, path: &str) -> Result<Self, ReflectError> {
        let module = naga::front::wgsl::parse_str(text)
            .map_err(|e| ReflectError::Wgsl(e.emit_to_string_with_path(text, path)))?;
        let validate =
            |caps| Validator::new(ValidationFlags::all(), caps).validate(&module).map_err(Box::new);
        let all = Caps::all();
        let info = validate(all)
            .map_err(|e| ReflectError::Wgsl(e.emit_to_string_with_path(text, path)))?;
        let needs_subgroup =
            validate(all.difference(Caps::SUBGROUP | Caps::SUBGROUP_BARRIER)).is_err();
        // WebGPU refuses the directive without the feature, whether or not anything is f16.
        let enabled = tokens(text);
        let is_f16 = |d: &Declaration<'_>| {
            d.kind == "enable" && enabled[d.tokens.clone()].iter().any(|t| t.text == "f16")
        };
        let needs_f16 = declarations(&enabled).iter().any(is_f16)
            || validate(all.difference(Caps::SHADER_FLOAT16)).is_err();

        let mut buffers = Vec::new();
        let mut handles = Vec::new();
        for (handle, var) in module.global_variables.iter() {
            let name = var.name.clone().unwrap_or_default();
            let least_bytes = u64::from(module.types[var.ty].inner.size(module.to_ctx()));
            let refuse = |reason| ReflectError::User { path: path.to_owned(), reason };
            if var.space == AddressSpace::Private && least_bytes > MOST_PRIVATE {
                return Err(refuse(format!(
                    "`{name}` has {least_bytes} bytes in every invocation; WGSL promises private \
                     variables of {MOST_PRIVATE}"
                )));
            }
            let (at, writable, uniform) = match (var.space, var.binding) {
                (AddressSpace::WorkGroup | AddressSpace::Private, None) => continue,
                (AddressSpace::Storage { access }, Some(at)) => {
                    (at, access.contains(StorageAccess::STORE), None)
                }
                (AddressSpace::Uniform, Some(at)) => {
                    let fields = fields(&module, var.ty);
                    (at, false, Some(fields.map_err(|e| refuse(format!("uniform `{name}`: {e}")))?))
                }
                _ => {
                    return Err(refuse(format!(
                        "`{name}` is no storage or uniform buffer with @group and @binding"
                    )));
                }
            };
            let (group, binding) = (at.group, at.binding);
            buffers.push(Buffer { name, group, binding, writable, least_bytes, uniform });
            handles.push(handle);
        }
        let entries = module
            .entry_points
            .iter()
            .enumerate()
            .map(|(index, point)| {
                let uses = info.get_entry_point(index);
                let used = (0..handles.len()).filter(|i| !uses[handles[*i]].is_empty()).collect();
                let written = |i: &usize| uses[handles[*i]].contains(GlobalUse::WRITE);
                let writes = (0..handles.len()).filter(written).collect();
                let unfolds = point.function.arguments.iter().any(|a| {
                    a.binding == Some(naga::Binding::BuiltIn(naga::BuiltIn::NumWorkGroups))
                });
                Entry { name: point.name.clone(), buffers: used, writes, unfolds }
            })
            .collect();
        let overrides = module
            .overrides
            .iter()
            .map(|(_, o)| {
                let default = match o.init {
                    None => Default::Required,
                    Some(e) => value(&module, e).map_or(Default::Derived, Default::Literal),
                };
                let name =
                    o.name.clone().ok_or_else(|| ReflectError::Anonymous(path.to_owned()))?;
                Ok((name, default))
            })
            .collect::<Result<_, ReflectError>>()?;
        let needs_cooperative_matrix = products(&module, &info);
        Ok(Self {
            module,
            info,
            buffers,
            overrides,
            entries,
            needs_subgroup,
            needs_f16,
            needs_cooperative_matrix,
        })
    }

    /// The entry point of a name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }

    /// A function, and the buffers that it and its callees touch.
    pub fn function(&self, name: &str) -> Option<(&naga::Function, Vec<&Buffer>)> {
        let mut all = self.module.functions.iter();
        let (handle, function) = all.find(|(_, f)| f.name.as_deref() == Some(name))?;
        let uses = &self.info[handle];
        let touches = |buffer: &&Buffer| {
            let mut globals = self.module.global_variables.iter();
            globals.any(|(global, v)| {
                v.name.as_ref() == Some(&buffer.name) && !uses[global].is_empty()
            })
        };
        let touched = self.buffers.iter().filter(touches).collect();
        Some((function, touched))
    }

    /// Element type of an array in a buffer, and the bytes from one element to the next.
    pub fn element(&self, buffer: &str) -> Option<(&naga::TypeInner, u32)> {
        let mut all = self.module.global_variables.iter();
        let (_, variable) = all.find(|(_, v)| v.name.as_deref() == Some(buffer))?;
        match self.module.types[variable.ty].inner {
            naga::TypeInner::Array { base, stride, .. } => {
                Some((&self.module.types[base].inner, stride))
            }
            _ => None,
        }
    }

    /// Returns true if the source declares an override of a name.
    pub fn has_override(&self, name: &str) -> bool {
        self.overrides.iter().any(|(known, _)| known == name)
    }

    /// All overrides with their values: `given` over the defaults. Names in `given` that the
    /// source does not declare are left out.
    pub fn constants<'a>(
        &self,
        given: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> Result<Constants, ReflectError> {
        let mut all: std::collections::BTreeMap<&str, Default> =
            self.overrides.iter().map(|(n, d)| (n.as_str(), *d)).collect();
        for (name, value) in given {
            if let Some(slot) = all.get_mut(name) {
                *slot = Default::Literal(value);
            }
        }
        all.into_iter()
            .filter_map(|(name, value)| match value {
                Default::Literal(v) => Some(Ok((name.to_owned(), v))),
                Default::Required => Some(Err(ReflectError::Override(name.to_owned()))),
                Default::Derived => None,
            })
            .collect()
    }

    /// Bytes of workgroup memory and invocations of an entry point under `constants`.
    pub fn workgroup(
        &self,
        entry: &str,
        constants: &Constants,
    ) -> Result<(u32, u32), ReflectError> {
        let mut module = self.overridden(&self.outline(entry)?, entry, constants)?;
        settle_array_sizes(&mut module)?;
        let context = module.to_ctx();
        let variables = module.entry_points[0].function.expressions.iter();
        let sizes = variables.map(|(_, used)| match *used {
            naga::Expression::GlobalVariable(v) => {
                module.types[module.global_variables[v].ty].inner.size(context)
            }
            _ => 0,
        });
        let bytes = sizes.fold(0, u32::saturating_add);
        let size = module.entry_points[0].workgroup_size;
        Ok((bytes, size.into_iter().fold(1, u32::saturating_mul)))
    }

    /// A module of the workgroup variables that an entry point uses, and of the entry point without
    /// its body: enough to know its size, at a fraction of the time. A plan of a model asks for
    /// hundreds.
    fn outline(&self, entry: &str) -> Result<Module, ReflectError> {
        let of = &self.module;
        let index = of.entry_points.iter().position(|e| e.name == entry);
        let index =
            index.ok_or_else(|| ReflectError::Constants(format!("no entry point `{entry}`")))?;
        let (point, uses) = (&of.entry_points[index], self.info.get_entry_point(index));
        let mut function = naga::Function::default();
        for (variable, v) in of.global_variables.iter() {
            if v.space == AddressSpace::WorkGroup && !uses[variable].is_empty() {
                let used = naga::Expression::GlobalVariable(variable);
                let used = function.expressions.append(used, naga::Span::UNDEFINED);
                // What has a name is kept.
                function.named_expressions.insert(used, v.name.clone().unwrap_or_default());
            }
        }
        // A constant without a name goes where nothing uses it. One of a struct that stays can come
        // to stand before the length of an array, which naga 30 then cannot order.
        let mut constants = of.constants.clone();
        constants.iter_mut().for_each(|(_, constant)| constant.name = None);
        Ok(Module {
            types: of.types.clone(),
            constants,
            overrides: of.overrides.clone(),
            global_variables: of.global_variables.clone(),
            global_expressions: of.global_expressions.clone(),
            entry_points: vec![naga::EntryPoint { function, ..point.clone() }],
            ..Module::default()
        })
    }

    /// The module of one entry point with its overrides applied, as every back end needs it.
    /// Branches that the overrides decide are reduced to the part taken.
    pub fn resolved(
        &self,
        entry: &str,
        constants: &Constants,
    ) -> Result<(Module, ModuleInfo), ReflectError> {
        self.settled(self.overridden(&self.module, entry, constants)?)
    }

    /// This module with loops over arrays written out, as engines that check every index need
    /// it to keep arrays in registers.
    pub fn unrolled(
        &self,
        entry: &str,
        constants: &Constants,
    ) -> Result<(Module, ModuleInfo), ReflectError> {
        let mut module = self.overridden(&self.module, entry, constants)?;
        // Only this one is called from nowhere.
        module.entry_points.retain(|point| point.name == entry);
        prune(&mut module);
        specialise(&mut module);
        prune(&mut module);
        unroll(&mut module);
        self.settled(module)
    }

    fn settled(&self, mut module: Module) -> Result<(Module, ModuleInfo), ReflectError> {
        prune(&mut module);
        naga::compact::compact(&mut module, naga::compact::KeepUnused::No);
        settle_array_sizes(&mut module)?;
        let info = Validator::new(ValidationFlags::all(), Caps::all())
            .validate(&module)
            .map_err(|e| ReflectError::Constants(e.to_string()))?;
        Ok((module, info))
    }

    /// This module or its outline with numbers in the places of overrides.
    fn overridden(
        &self,
        module: &Module,
        entry: &str,
        constants: &Constants,
    ) -> Result<Module, ReflectError> {
        let values = constants.iter().map(|(k, v)| (k.clone(), *v)).collect();
        let stage = Some((naga::ShaderStage::Compute, entry));
        // What naga knows of the module comes back where nothing changes, and has no other use.
        let (module, _) = process_overrides(module, &self.info, stage, &values)
            .map_err(|e| ReflectError::Constants(e.to_string()))?;
        Ok(module.into_owned())
    }
}

/// The cooperative products that the functions of a module ask for, each once.
fn products(module: &Module, info: &ModuleInfo) -> Vec<CooperativeMatrix> {
    use naga::{Expression, ScalarKind, TypeInner};
    let matrix = |function: &naga::valid::FunctionInfo, e: naga::Handle<naga::Expression>| {
        match *function[e].ty.inner_with(&module.types) {
            TypeInner::CooperativeMatrix { columns, rows, scalar, .. } => {
                let scalar = match (scalar.kind, scalar.width) {
                    (ScalarKind::Float, 2) => MatrixScalar::F16,
                    (ScalarKind::Sint, _) => MatrixScalar::I32,
                    (ScalarKind::Uint, _) => MatrixScalar::U32,
                    _ => MatrixScalar::F32,
                };
                Some((columns as u32, rows as u32, scalar))
            }
            _ => None,
        }
    };
    let functions = module.functions.iter().map(|(h, f)| (f, &info[h]));
    let entries = module.entry_points.iter().enumerate();
    let entries = entries.map(|(i, point)| (&point.function, info.get_entry_point(i)));
    let mut found = Vec::new();
    for (function, types) in functions.chain(entries) {
        for (_, expression) in function.expressions.iter() {
            let Expression::CooperativeMultiplyAdd { a, b, c } = *expression else { continue };
            let (Some((k, m, inputs)), Some((n, ..)), Some((_, _, sums))) =
                (matrix(types, a), matrix(types, b), matrix(types, c))
            else {
                continue;
            };
            found.push(CooperativeMatrix { m, n, k, inputs, sums });
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The numbers of a uniform.
fn fields(module: &Module, ty: naga::Handle<naga::Type>) -> Result<Vec<Field>, String> {
    /// Largest uniform binding of WebGPU.
    const MOST_BYTES: u32 = 1 << 16;
    let bytes = module.types[ty].inner.size(module.to_ctx());
    if bytes > MOST_BYTES {
        return Err(format!("is {bytes} bytes, a uniform holds {MOST_BYTES}"));
    }
    let mut fields = Fields::default();
    fields.add(module, ty, 0, String::new(), 0)?;
    Ok(fields.all)
}

/// The fields of a uniform, and the bytes of all their names, which multiply for nested structs in
/// arrays.
#[derive(Default)]
struct Fields {
    all: Vec<Field>,
    name_bytes: usize,
}

impl Fields {
    fn add(
        &mut self,
        module: &Module,
        ty: naga::Handle<naga::Type>,
        at: u32,
        name: String,
        depth: usize,
    ) -> Result<(), String> {
        use naga::TypeInner;
        /// More than anybody writes a mapping for.
        const MOST_NAME_BYTES: usize = 1 << 20;
        const DEEPEST: usize = 32;
        self.name_bytes += name.len() + 1;
        if self.name_bytes > MOST_NAME_BYTES || depth > DEEPEST {
            return Err(format!(
                "has structs more than {DEEPEST} deep, or more than {MOST_NAME_BYTES} bytes of \
                 names of fields"
            ));
        }
        match &module.types[ty].inner {
            TypeInner::Struct { members, .. } => members.iter().try_for_each(|member| {
                let own = member.name.as_deref().unwrap_or_default();
                let name = if name.is_empty() { own.to_owned() } else { format!("{name}.{own}") };
                self.add(module, member.ty, at + member.offset, name, depth + 1)
            }),
            TypeInner::Array { base, size: naga::ArraySize::Constant(count), stride }
                if holds_structs(module, *base) =>
            {
                (0..count.get()).try_for_each(|i| {
                    self.add(module, *base, at + i * stride, format!("{name}[{i}]"), depth + 1)
                })
            }
            _ => {
                let mut offsets = Vec::new();
                let Some(scalar) = add_numbers(module, ty, at, &mut offsets) else {
                    return Err(match name.as_str() {
                        "" => "is made of no u32, i32 or f32".to_owned(),
                        name => format!("field `{name}` is made of no u32, i32 or f32"),
                    });
                };
                self.all.push(Field { name, offsets, scalar });
                Ok(())
            }
        }
    }
}

/// Returns true for a struct, or an array of such types.
fn holds_structs(module: &Module, ty: naga::Handle<naga::Type>) -> bool {
    match module.types[ty].inner {
        naga::TypeInner::Struct { .. } => true,
        naga::TypeInner::Array { base, .. } => holds_structs(module, base),
        _ => false,
    }
}

/// Adds the byte offsets of a type's numbers, with their types; none where they are not of 32 bits,
/// or their count is not known before a pipeline is made.
fn add_numbers(
    module: &Module,
    ty: naga::Handle<naga::Type>,
    at: u32,
    offsets: &mut Vec<u32>,
) -> Option<Scalar> {
    use naga::{ArraySize, Scalar as NagaScalar, ScalarKind, TypeInner, VectorSize};
    let of = |scalar: NagaScalar| match scalar {
        NagaScalar { kind: ScalarKind::Uint, width: 4 } => Some(Scalar::U32),
        NagaScalar { kind: ScalarKind::Sint, width: 4 } => Some(Scalar::I32),
        NagaScalar { kind: ScalarKind::Float, width: 4 } => Some(Scalar::F32),
        _ => None,
    };
    match module.types[ty].inner {
        TypeInner::Scalar(scalar) => {
            offsets.push(at);
            of(scalar)
        }
        TypeInner::Vector { size, scalar } => {
            offsets.extend((0..size as u32).map(|i| at + 4 * i));
            of(scalar)
        }
        TypeInner::Matrix { columns, rows, scalar } => {
            // A column lies as a vector does: three numbers take the room of four.
            let stride = if rows == VectorSize::Bi { 8 } else { 16 };
            for column in 0..columns as u32 {
                offsets.extend((0..rows as u32).map(|row| at + stride * column + 4 * row));
            }
            of(scalar)
        }
        TypeInner::Array { base, size: ArraySize::Constant(count), stride } => {
            let each = |i| add_numbers(module, base, at + i * stride, offsets);
            (0..count.get()).map(each).last()?
        }
        _ => None,
    }
}

/// naga 30 leaves array lengths as references to overrides it has evaluated, which its WGSL writer
/// cannot print. Puts the numbers in their places; that is the end of overrides.
fn settle_array_sizes(module: &mut Module) -> Result<(), ReflectError> {
    use naga::{ArraySize, TypeInner};
    let mut settled = Vec::new();
    for (handle, ty) in module.types.iter() {
        let TypeInner::Array { base, size: ArraySize::Pending(over), stride } = ty.inner else {
            continue;
        };
        let length = module.overrides[over]
            .init
            .and_then(|e| value(module, e))
            .and_then(|n| std::num::NonZeroU32::new(n as u32))
            .ok_or_else(|| ReflectError::Constants("an array length is not positive".into()))?;
        let inner = TypeInner::Array { base, size: ArraySize::Constant(length), stride };
        settled.push((handle, naga::Type { name: ty.name.clone(), inner }));
    }
    for (handle, ty) in settled {
        // Two arrays may now be the same type; naga wants each once, so the twin keeps its
        // identity by name.
        let name = ty.name.clone().or_else(|| Some(format!("sized_{}", handle.index())));
        module.types.replace(handle, naga::Type { name, ..ty });
    }
    module.overrides.clear();
    Ok(())
}

/// The value of a global expression that is a number, or a constant's name.
fn value(module: &Module, at: naga::Handle<naga::Expression>) -> Option<f64> {
    use naga::{Expression, Literal};
    match module.global_expressions[at] {
        Expression::Constant(c) => value(module, module.constants[c].init),
        Expression::Literal(Literal::U32(v)) => Some(f64::from(v)),
        Expression::Literal(Literal::I32(v)) => Some(f64::from(v)),
        Expression::Literal(Literal::F32(v)) => Some(f64::from(v)),
        Expression::Literal(Literal::Bool(v)) => Some(f64::from(u8::from(v))),
        _ => None,
    }
}
