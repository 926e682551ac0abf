"""Small models with random weights, by their libraries' own classes, and batches."""

from collections.abc import Callable

import timm
import torch
import transformers as tf
from torch import nn

LENGTH, VOCABULARY, LABELS = 12, 64, 5
SIZES = {"vocab_size": VOCABULARY, "max_position_embeddings": 64}


def _bert() -> nn.Module:
    config = tf.BertConfig(
        **SIZES, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, num_labels=LABELS, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return tf.BertForSequenceClassification(config)


def _gpt2() -> nn.Module:
    config = tf.GPT2Config(
        vocab_size=VOCABULARY, n_positions=64, n_embd=32, n_layer=2, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1,
        eos_token_id=2,
    )  # fmt: skip
    return tf.GPT2LMHeadModel(config)


def _llama() -> nn.Module:
    config = tf.LlamaConfig(
        **SIZES, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=64, bos_token_id=1, eos_token_id=2,
        pad_token_id=0,
    )  # fmt: skip
    return tf.LlamaForCausalLM(config)


def _t5() -> nn.Module:
    config = tf.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
        dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0, eos_token_id=2,
    )  # fmt: skip
    return tf.T5ForConditionalGeneration(config)


def _vit() -> nn.Module:
    config = tf.ViTConfig(
        image_size=16, patch_size=4, hidden_size=32, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=64, num_labels=LABELS,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return tf.ViTForImageClassification(config)


def _tokens(n: int, seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (n, LENGTH), generator=g)


def _images(n: int, seed: int, size: int) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {
        "pixel_values": torch.randn(n, 3, size, size, generator=g),
        "labels": torch.randint(0, LABELS, (n,), generator=g),
    }


def text(n: int, seed: int) -> dict[str, torch.Tensor]:
    """Whole sentences, without a mask: transformers reads a mask on the host, at every
    step, to find out whether it masks anything."""
    ids = _tokens(n, seed)
    return {"input_ids": ids, "labels": ids}


def sentences(n: int, seed: int) -> dict[str, torch.Tensor]:
    batch = text(n, seed)
    return {**batch, "labels": batch["input_ids"][:, 0] % LABELS}


def pictures(n: int, seed: int) -> dict[str, torch.Tensor]:
    return _images(n, seed, 16)


Batch = Callable[[int, int], dict[str, torch.Tensor]]
MODELS: dict[str, tuple[Callable[[], nn.Module], Batch]] = {
    "bert": (_bert, sentences),
    "gpt2": (_gpt2, text),
    "llama": (_llama, text),
    "t5": (_t5, text),
    "vit": (_vit, pictures),
}
GENERATORS = ("gpt2", "llama", "t5")
TIMM = {
    "resnet10t": {"drop_rate": 0.0},
    "convnext_atto": {},
    "vit_tiny_patch16_224": {"img_size": 32},
}


def build(name: str) -> tuple[nn.Module, Batch]:
    """The model, always with the same weights, and what makes its batches."""
    torch.manual_seed(0)
    make, batch = MODELS[name]
    return make(), batch


def build_timm(name: str) -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model(name, num_classes=LABELS, **TIMM[name])


def timm_batch(n: int, seed: int) -> dict[str, torch.Tensor]:
    return _images(n, seed, 32)
