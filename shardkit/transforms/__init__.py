"""Transforms: image operations that are part of decoding, one for whole batches, and random numbers for your own."""

from shardkit.transforms.compose import Compose, Transform
from shardkit.transforms.image_ops import (
    CenterCrop,
    ImageOp,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
)
from shardkit.transforms.normalize import Normalize
from shardkit.transforms.randomness import sample_rng

__all__ = [
    "CenterCrop",
    "Compose",
    "ImageOp",
    "Normalize",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "Transform",
    "sample_rng",
]
