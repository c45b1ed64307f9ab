#!/usr/bin/env python3
"""Writes the WGSL that the mappings of this folder are for, from a checkout of an engine.

    python3 mappings/instantiate.py ENGINE CHECKOUT... OUT
    lathe check gemv --mapping OUT/mul_mat_vec_f16.toml

ENGINE is ggml-webgpu (a checkout of llama.cpp or of ggml), doppler, or wgml (checkouts of wgml and
of wgmath, whose modules it imports). OUT gets the text and the mappings beside it.

    python3 mappings/instantiate.py mappings OUT

writes the mappings of every engine to OUT/ENGINE, without any text.

    python3 mappings/instantiate.py text FILE [NAME | NAME=VALUE]... > OUT.wgsl

carries out #if, #define and #include of any one file, with these names defined. ONNX Runtime Web
makes its WGSL when a model runs, so there is nothing to instantiate: save_shaders.js saves it in
the browser.
"""

import ast
import pathlib
import re
import sys

GGML = "ggml/src/ggml-webgpu/wgsl-shaders"
# On an adapter without subgroups ggml gives USE_WORKGROUP_REDUCTION; the mappings are the same.
VECTOR = {
    "SRC1_INNER_TYPE": "f32",
    "WG_SIZE": "256",
    "OUTPUTS_PER_WG": "4",
    "NUM_COLS": "1",
    "USE_SUBGROUP_REDUCTION": "",
}
FLOATS = {
    "f32": {"MUL_ACC_FLOAT": "", "SRC0_INNER_TYPE": "f32", "TYPE_F32": ""},
    "f16": {"MUL_ACC_FLOAT": "", "SRC0_INNER_TYPE": "f16", "TYPE_F16": ""},
    "bf16": {"MUL_ACC_FLOAT": "", "SRC0_INNER_TYPE": "u32", "TYPE_BF16": ""},
}
QUANTS = ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"]
BLOCKS = {"SRC0_INNER_TYPE": "u32", "BYTE_HELPERS": "", "U32_DEQUANT_HELPERS": ""}
MMVQ = {"MMVQ": "", "Q8_1_T": ""}


def vector(name, way="SCALAR", more=()):
    """What mul_mat_vec.wgsl is given for a storage format."""
    own = FLOATS[name] if name in FLOATS else BLOCKS | {f"MUL_ACC_{name.upper()}": ""}
    return f"{GGML}/mul_mat_vec.wgsl", VECTOR | own | {way: ""} | dict(more)


def mmvq(name):
    way = "K_QUANTS_HANDLING" if name.endswith("_k") else "LEGACY_QUANTS_HANDLING"
    return vector(name, more=MMVQ | {way: ""})


def quantize(name):
    keys = ("SRC1_INNER_TYPE", "WG_SIZE", "USE_SUBGROUP_REDUCTION")
    given = {key: VECTOR[key] for key in keys} | {f"MUL_ACC_{name.upper()}": "", "Q8_1_T": ""}
    return f"{GGML}/quantize_q8.wgsl", given


def get_rows(name):
    """What get_rows.wgsl is given. It reads q4_k as a structure, other blocks as words."""
    given = {"DST_TYPE": "f32", "WG_SIZE": "256"}
    if name in FLOATS:
        own = {name.upper(): "", "SRC_TYPE": "u32" if name == "bf16" else name, "BLOCK_SIZE": "1u"}
        own |= {} if name == "bf16" else {"FLOAT_PARALLEL": ""}
        return f"{GGML}/get_rows.wgsl", given | own
    block, upper = ("256u" if name.endswith("_k") else "32u"), name.upper()
    own = {"SRC_TYPE": "u32", "U32_DEQUANT_HELPERS": ""} if name != "q4_k" else {"SRC_TYPE": "q4_K"}
    names = ["BYTE_HELPERS", f"{upper}_T", upper, f"{upper}_SCALE_MIN"]
    return f"{GGML}/get_rows.wgsl", given | own | dict.fromkeys(names, "") | {"BLOCK_SIZE": block}


def glu(way):
    given = dict.fromkeys([way, "TYPE_F32", "NO_SPLIT"], "") | {"WG_SIZE": "256"}
    return f"{GGML}/glu.wgsl", given


def attention(part, head_dim):
    given = {"DST_F32": "", "HEAD_DIM_V": str(head_dim), "WG_SIZE": "256"}
    if part == "split":
        given |= dict.fromkeys(["K_F16", "V_F16", "Q_F32", "K_DIRECT", "V_DIRECT"], "")
        given |= {"HEAD_DIM_QK": str(head_dim), "Q_TILE": "1", "KV_TILE": "32"}
        given |= {"WG_SIZE": "32", "D_SPLIT": "4"}
    return f"{GGML}/flash_attn_vec_{part}.wgsl", given


def tile(name):
    """What mul_mat_reg_tile.wgsl is given. Floats are read as vec4."""
    given = {"SRC1_INNER_TYPE": "f32", "INIT_SRC1_SHMEM_FLOAT": ""}
    given |= dict.fromkeys(["TILE_M", "TILE_N"], "4u")
    given |= dict.fromkeys(["WORKGROUP_SIZE_M", "WORKGROUP_SIZE_N"], "8u")
    if name in FLOATS:
        own = FLOATS[name] | {"VEC": "", "TILE_K": "8u", "INIT_SRC0_SHMEM_FLOAT": ""}
    else:
        names = ["SCALAR", f"MUL_ACC_{name.upper()}", f"INIT_SRC0_SHMEM_{name.upper()}"]
        own = BLOCKS | {"TILE_K": "32u"} | dict.fromkeys(names, "")
    return f"{GGML}/mul_mat_reg_tile.wgsl", given | own


# The source of each text, and what its templates are given.
TEXTS = {
    "ggml-webgpu": {
        # Their text for q8_0 and q6_k has no sums of the blocks.
        "quantize_q8.wgsl": quantize("q8_0"),
        "quantize_q8_sums.wgsl": quantize("q4_0"),
        "rms_norm_mul.wgsl": (f"{GGML}/rms_norm_mul.wgsl", {"WG_SIZE": "256"}),
        "rope.wgsl": (f"{GGML}/rope.wgsl", {"TYPE_F32": "", "INPLACE": "", "WG_SIZE": "256"}),
        "glu_swiglu.wgsl": glu("OP_SWIGLU"),
        "glu_geglu.wgsl": glu("OP_GEGLU"),
    }
    | {f"mul_mat_vec_{name}.wgsl": vector(name) for name in ["f16", "bf16", *QUANTS]}
    | {f"mul_mat_vec_{name}_vec.wgsl": vector(name, "VEC") for name in ("f32", "f16")}
    | {f"mmvq_{name}.wgsl": mmvq(name) for name in QUANTS}
    | {
        f"mul_mat_reg_tile_{name}.wgsl": tile(name)
        for name in ("f16", "q8_0", "q4_0", "q4_k", "q6_k")
    }
    | {
        f"flash_attn_vec_{part}_{head_dim}.wgsl": attention(part, head_dim)
        for part in ("split", "reduce")
        for head_dim in (64, 128, 256)
    }
    | {
        f"get_rows_{name}.wgsl": get_rows(name)
        for name in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k")
    },
    "doppler": {
        f"{name}.wgsl": (f"src/gpu/kernels/{name}.wgsl", {})
        for name in (
            "attention_decode_online_f16kv",
            "attention_decode_online_head256_f16kv",
            "dequant_subgroup",
            "fused_ffn",
            "fused_matmul_q4",
            "fused_matmul_q4_widetile",
            "fused_matmul_rmsnorm",
            "matmul_f16w_f32a_tiled",
            "matmul_gemv",
            "matmul_gemv_subgroup",
            "residual",
            "rmsnorm",
            "rope",
            "silu",
        )
    },
    "wgml": {"rms_norm.wgsl": ("crates/wgml/src/ops/rms_norm.wgsl", {})}
    | {
        f"gemv_quant_{name}.wgsl": (
            f"crates/wgml/src/ops/gemv_quant_{name}.wgsl",
            {"ROW_MAJOR": ""},
        )
        for name in ("q4_0x2", "q4_k", "q5_k", "q6_kx2", "q8_0x2")
    },
}


def holds(condition, defines):
    """The value of what follows #if: numbers, names, defined(NAME), ! && || and comparisons."""
    text = re.sub(r"defined\s*\(\s*(\w+)\s*\)", lambda m: str(int(m[1] in defines)), condition)
    text = re.sub(r"[A-Za-z_]\w*", lambda m: defines.get(m[0]) or "0", text)
    text = text.replace("&&", " and ").replace("||", " or ")
    text = re.sub(r"!(?!=)", " not ", text)
    text = re.sub(r"(\d)u\b", r"\1", text)
    if not re.fullmatch(r"[\d\s()<>=!+\-*/%andort]*", text):
        sys.exit(f"cannot read the condition: {condition}")
    return bool(eval(text, {"__builtins__": {}}))


def replaced(line, defines):
    """A line with what is defined in the place of its names, and in the place of theirs."""
    for _ in range(8):
        new = re.sub(r"\b[A-Za-z_]\w*\b", lambda m: defines.get(m[0]) or m[0], line)
        if new == line:
            break
        line = new
    return line


def preprocessed(path, defines, given=None):
    """A file with #include, #define and conditions carried out. What is given stays."""
    given = set(defines) if given is None else given
    out, taken = [], []  # of each open condition: taken now, taken before
    for line in path.read_text().replace("\\\n", "").splitlines():
        word = re.match(r"\s*#\s*(\w+)\s*(.*?)\s*$", line)
        active = all(now for now, _ in taken)
        if not word or word[1] == "import" or word[1] == "define_import_path":
            if active:
                out.append(replaced(line, defines))
            continue
        name, rest = word[1], word[2].split("//")[0].strip()
        if name in ("ifdef", "ifndef", "if"):
            met = holds(rest, defines) if name == "if" else (rest in defines) == (name == "ifdef")
            taken.append((active and met, met))
        elif name in ("elif", "else"):
            _, before = taken.pop()
            outer = all(now for now, _ in taken)
            met = not before and (name == "else" or holds(rest, defines))
            taken.append((outer and met, before or met))
        elif name == "endif":
            taken.pop()
        elif not active:
            continue
        elif name == "define":
            key, _, value = rest.partition(" ")
            if key not in given:
                defines[key] = value.strip()
        elif name == "undef":
            if rest not in given:
                defines.pop(rest, None)
        elif name == "include":
            out.append(preprocessed(path.parent / rest.strip('"'), defines, given))
        else:
            sys.exit(f"{path}: cannot carry out #{name}")
    if taken:
        sys.exit(f"{path}: a condition has no #endif")
    return "\n".join(out)


def linked(text, modules, defines, done):
    """A text with its `#import path as Name` carried out: `Name::item` becomes `Name_item`."""
    imports = re.findall(r"^#import\s+([\w:]+)\s+as\s+(\w+);?\s*$", text, re.M)
    text = re.sub(r"^#(import|define_import_path)\b.*$", "", text, flags=re.M)
    before = ""
    for path, name in imports:
        text = re.sub(rf"\b{name}::", f"{name}_", text)
        if path in done:
            continue
        done.add(path)
        if path not in modules:
            sys.exit(f"no file has #define_import_path {path}")
        module = preprocessed(modules[path], dict(defines))
        own = re.findall(r"^\s*(?:fn|struct|const|alias)\s+(\w+)", module, re.M)
        module = linked(module, modules, defines, done)
        for item in own:
            module = re.sub(rf"(?<!\.)\b{item}\b", f"{name}_{item}", module)
        before += module + "\n"
    return before + text


def mappings(engine):
    """Yields the name and the text of each mapping of an engine.

    A file with sections `[[for]]` is a template: their values take the places of their names in
    braces, those of lists in turn.
    """
    for path in sorted((pathlib.Path(__file__).parent / engine).glob("*.toml")):
        text, *rows = re.split(r"\n\[\[for\]\]\n", path.read_text())
        for row in rows or [""]:
            given = {
                key: ast.literal_eval(value)
                for key, value in re.findall(r"^(\w+) = (.*)$", row, re.M)
            }
            count = max((len(v) for v in given.values() if isinstance(v, list)), default=1)
            for i in range(count):
                one = text
                for key, value in given.items():
                    value = value[i] if isinstance(value, list) else value
                    one = one.replace(f"{{{key}}}", str(value))
                # The first line is `# lathe check KERNEL --mapping NAME.toml`.
                yield one.split("\n")[0].split(" ")[-1], one


def write_mappings(engine, out):
    out.mkdir(parents=True, exist_ok=True)
    for name, text in mappings(engine):
        (out / name).write_text(text)
        print(f"lathe {text.splitlines()[0].split('lathe ')[1]}")


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "mappings":
        for engine in (*TEXTS, "onnxruntime-web"):
            write_mappings(engine, pathlib.Path(sys.argv[2]) / engine)
        return
    if len(sys.argv) > 2 and sys.argv[1] == "text":
        defines = dict(name.partition("=")[::2] for name in sys.argv[3:])
        print(preprocessed(pathlib.Path(sys.argv[2]), defines))
        return
    if len(sys.argv) < 4 or sys.argv[1] not in TEXTS:
        sys.exit(f"{__doc__}\nengines: {', '.join(TEXTS)}")
    engine, *checkouts, out = sys.argv[1:]
    checkouts, out = [pathlib.Path(checkout) for checkout in checkouts], pathlib.Path(out)
    modules = {}
    for path in (path for checkout in checkouts for path in checkout.rglob("*.wgsl")):
        found = re.search(r"^#define_import_path\s+([\w:]+)", path.read_text(), re.M)
        if found:
            modules.setdefault(found[1], path)
    out.mkdir(parents=True, exist_ok=True)
    for name, (source, defines) in TEXTS[engine].items():
        # A checkout of ggml alone has no folder around it.
        places = [c / s for c in checkouts for s in (source, source.removeprefix("ggml/"))]
        path = next((place for place in places if place.is_file()), None)
        if not path:
            sys.exit(f"no checkout has {source}: is one of them of {engine}?")
        text = linked(preprocessed(path, dict(defines)), modules, defines, set())
        (out / name).write_text(text + "\n")
    write_mappings(engine, out)


if __name__ == "__main__":
    main()
