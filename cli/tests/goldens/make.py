#!/usr/bin/env python3
"""Makes tiny Hugging Face checkpoints with the logits of transformers in float32.

    python3 make.py [NAME…] [--into FOLDER]

Each golden is a folder `NAME` (config.json, model.safetensors in bf16), `NAME.json` (prompt, greedy
tokens, positions, vocabulary) and `NAME.logits.f32` (little-endian rows of the vocabulary, one per
position of prompt and greedy tokens). Without names all are made, beside this file. Needs torch,
transformers 5 and numpy. Weights are random but large enough that every part matters: a dropped
bias or an unscaled rope moves the logits.
"""
import argparse
import json
import pathlib

import numpy as np
import torch
from transformers import (
    Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, MistralConfig,
    MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
)

PROMPT, GREEDY, VOCAB, LEAST_MARGIN = 40, 24, 320, 0.005
SHAPE = dict(
    vocab_size=VOCAB, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, bos_token_id=2, eos_token_id=1, pad_token_id=0,
)


def default_rope(theta):
    return {"rope_type": "default", "rope_theta": theta}


def yarn(theta, **more):
    return {"rope_type": "yarn", "rope_theta": theta, "factor": 4.0,
            "original_max_position_embeddings": 32, **more}


GOLDENS = {
    # Gemma 3 4B to 27B: positions of global layers are divided by 8, those of local ones are not.
    "gemma3-tiny-linear": lambda: (Gemma3ForCausalLM, Gemma3TextConfig(
        **SHAPE | {"num_hidden_layers": 3}, head_dim=64, query_pre_attn_scalar=64, sliding_window=16,
        max_position_embeddings=1024,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": default_rope(1e4),
        })),
    # Qwen3 with 128K positions: yarn, with its attention factor. The prompt passes the original 32.
    "qwen3-tiny-yarn": lambda: (Qwen3ForCausalLM, Qwen3Config(
        **SHAPE, head_dim=64, max_position_embeddings=128, tie_word_embeddings=True,
        rope_parameters=yarn(1e6))),
    # Yarn as other fine-tunes have it: betas and an attention factor of their own.
    "llama-tiny-yarn": lambda: (LlamaForCausalLM, LlamaConfig(
        **SHAPE, head_dim=32, max_position_embeddings=128, tie_word_embeddings=False,
        rope_parameters=yarn(1e4, beta_fast=16.0, beta_slow=2.0, attention_factor=1.25))),
    # Linear rope in every layer (DeepSeek-coder).
    "llama-tiny-linear": lambda: (LlamaForCausalLM, LlamaConfig(
        **SHAPE, head_dim=32, max_position_embeddings=128, tie_word_embeddings=True,
        rope_parameters={"rope_type": "linear", "rope_theta": 1e5, "factor": 4.0})),
    # Qwen2 and 2.5: biases on Q, K and V, no norm of queries and keys.
    "qwen2-tiny": lambda: (Qwen2ForCausalLM, Qwen2Config(
        **SHAPE, max_position_embeddings=128, tie_word_embeddings=True,
        rope_parameters=default_rope(1e6))),
    # Mistral, with heads that are not hidden / heads wide (Nemo).
    "mistral-tiny": lambda: (MistralForCausalLM, MistralConfig(
        **SHAPE, head_dim=64, max_position_embeddings=128, tie_word_embeddings=False,
        sliding_window=None, rope_parameters=default_rope(1e6))),
    # Mistral 7B v0.1: a window in every layer, which prompt and answer leave behind.
    "mistral-tiny-window": lambda: (MistralForCausalLM, MistralConfig(
        **SHAPE, max_position_embeddings=128, tie_word_embeddings=True, sliding_window=16,
        rope_parameters=default_rope(1e4))),
    # Llama with narrow heads: 4 of 16 for a hidden size of 128.
    "llama-tiny-narrow": lambda: (LlamaForCausalLM, LlamaConfig(
        **SHAPE, head_dim=16, max_position_embeddings=128, tie_word_embeddings=True,
        rope_parameters=default_rope(1e4))),
}


def make(name, into):
    """Makes a golden whose choices are no close calls: a cache of f16 may decide those otherwise."""
    seed = sum(name.encode())
    while not made(name, into, seed):
        seed += 1


def made(name, into, seed):
    torch.manual_seed(seed)
    model_class, config = GOLDENS[name]()
    config.torch_dtype = config.dtype = torch.float32
    model = model_class(config).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            if key.endswith("bias"):
                p.normal_(0.0, 0.5)
            elif p.dim() == 1:
                # Gemma adds one to the weights of its norms.
                p.normal_(0.0 if "gemma" in name else 1.0, 0.2)
            else:
                p.normal_(0.0, 1.2 / p.shape[1] ** 0.5)
            p.copy_(p.to(torch.bfloat16).float())
    model.config.dtype = torch.bfloat16
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, VOCAB, (1, PROMPT), generator=generator)
    ids[0, 0] = 2
    prompt = ids[0].tolist()
    with torch.no_grad():
        for _ in range(GREEDY):
            logits = model(ids, use_cache=False).logits[0]
            ids = torch.cat([ids, logits[-1].argmax().view(1, 1)], dim=1)
        logits = model(ids, use_cache=False).logits[0].float().numpy()
    greedy = ids[0, PROMPT:].tolist()
    top = np.sort(logits, axis=1)
    margin = float((top[:, -1] - top[:, -2]).min())
    if margin < LEAST_MARGIN:
        return False
    saved = into / name
    model.to(torch.bfloat16).save_pretrained(saved)
    for extra in saved.glob("generation_config.json"):
        extra.unlink()
    (into / f"{name}.logits.f32").write_bytes(logits.astype("<f4").tobytes())
    (into / f"{name}.json").write_text(json.dumps({
        "name": name, "prompt": prompt, "greedy": greedy, "positions": len(prompt + greedy),
        "vocab": VOCAB, "smallest_top1_margin": margin,
    }) + "\n")
    print(name, "logit std", float(logits.std()), "margin", margin)
    return True


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("names", nargs="*", metavar="NAME", help="goldens to make; without names all")
    args.add_argument("--into", default=pathlib.Path(__file__).parent, type=pathlib.Path,
                      metavar="FOLDER", help="where they go; beside this file by default")
    args = args.parse_args()
    for name in args.names:
        if name not in GOLDENS:
            raise SystemExit(f"{name} is no golden; known are {', '.join(GOLDENS)}")
    args.into.mkdir(parents=True, exist_ok=True)
    for name in args.names or GOLDENS:
        make(name, args.into)


if __name__ == "__main__":
    main()
