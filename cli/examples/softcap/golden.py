"""Writes golden.safetensors, inputs and expected outputs of softcap: python golden.py"""
import json
import struct

import numpy as np

rng = np.random.default_rng(42)
tensors, metadata = {}, {}
for case, n, cap in [("a", 100, 30.0), ("b", 100, 30.0), ("c", 257, 50.0), ("d", 1, 5.0)]:
    x = (40.0 * rng.standard_normal(n)).astype("<f4")
    y = cap * np.tanh(x.astype(np.float64) / cap)
    # WGSL's tanh is as exact as sinh / cosh: its errors scale with the bound, not with the result.
    magnitude = np.full(n, cap, "<f4")
    tensors |= {f"{case}.x": x, f"{case}.y.expected": y.astype("<f4"), f"{case}.y.magnitude": magnitude}
    metadata[case] = f"N={n},CAP={cap}"

header, end = {"__metadata__": metadata}, 0
for name, values in tensors.items():
    header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [end, end + values.nbytes]}
    end += values.nbytes
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open("golden.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + b"".join(v.tobytes() for v in tensors.values()))
