"""Transforms: image operations as part of decoding, two for whole batches, and random numbers for your own."""

from shardkit.transforms.compose import Compose, Transform
from shardkit.transforms.decode_images import DecodeImages
from shardkit.transforms.encoded import Encoded
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
    "DecodeImages",
    "Encoded",
    "ImageOp",
    "Normalize",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "Transform",
    "sample_rng",
]
