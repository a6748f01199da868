"""Small GGUF files, as llama.cpp writes them of a Llama: tensors under its names, queries and keys permuted."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from turnwise.policy.tokenizer import CHAT_TEMPLATE, train_tokenizer

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
HEADS, POSITIONS = 2, 512


def small_llama(vocabulary: int) -> LlamaForCausalLM:
    """A Llama of 64 wide layers with an embedding that is its output layer."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": HEADS}
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            num_key_value_heads=HEADS,
            max_position_embeddings=POSITIONS,
            tie_word_embeddings=True,
            **sizes,
        )
    )


def write_gguf(
    path: Path,
    precision: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    *,
    architecture: str = "llama",
    template: str | None = CHAT_TEMPLATE,
) -> LlamaForCausalLM:
    """Write a small model, its matrices in this precision; returns the model as it was before."""
    folder = path.with_name("tokenizer of the sample")
    train_tokenizer(["a text to learn from"] * 8, 300, []).save_pretrained(folder)
    words = json.loads((folder / "tokenizer.json").read_text())
    tokens = sorted(words["model"]["vocab"], key=words["model"]["vocab"].__getitem__)
    control = {each["content"] for each in words["added_tokens"] if each["special"]}
    model = small_llama(len(tokens))
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(96)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(64 // HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    kinds = (gguf.TokenType.CONTROL, gguf.TokenType.NORMAL)
    writer.add_token_types([kinds[token not in control] for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in words["model"]["merges"]])
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(tokens.index("<|pad|>"))
    if template is not None:
        writer.add_chat_template(template)
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight":
            values = tensor.numpy()
            if "q_proj" in name or "k_proj" in name:
                values = values.reshape(HEADS, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
            kind = precision if values.ndim == 2 else gguf.GGMLQuantizationType.F32
            writer.add_tensor(_name(name), gguf.quantize(np.ascontiguousarray(values), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _name(name: str) -> str:
    for theirs, ours in NAMES.items():
        name = name.replace(theirs, ours)
    return name.replace("model.layers.", "blk.")
