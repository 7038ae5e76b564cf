"""Compose: what comes first is part of decoding, what comes after is done one by one."""

import pickle
import random
from typing import Any

import pytest
import torch

from shardkit.errors import TransformError
from shardkit.transforms import CenterCrop, Compose, RandomHorizontalFlip, Resize
from shardkit.transforms.compose import plan, split
from shardkit.transforms.steps import Cut, Mirror, Scale

IMAGE = torch.arange(2 * 6 * 8, dtype=torch.uint8).reshape(2, 6, 8)


def brighten(sample: dict[str, Any]) -> dict[str, Any]:
    return sample | {"image": sample["image"] + 1}


def drop(sample: dict[str, Any]) -> None:
    return None


def fail(sample: dict[str, Any]) -> dict[str, Any]:
    raise AssertionError("it was called")


FLIP, CROP, RESIZE = RandomHorizontalFlip(1), CenterCrop(4), Resize(3)


def test_transforms_are_called_one_after_the_other() -> None:
    made = Compose([brighten, CROP, brighten, FLIP])({"id": "a", "image": IMAGE})
    assert torch.equal(made["image"], (IMAGE + 2)[:, 1:5, 2:6].flip(2))
    assert Compose([])({"id": "a"}) == {"id": "a"}


def test_nothing_is_called_once_the_sample_was_left_out() -> None:
    assert Compose([brighten, drop, fail])({"id": "a", "image": IMAGE}) is None


@pytest.mark.parametrize(
    ("transform", "leading", "rest"),
    [
        (None, [], None),
        (CROP, [CROP], None),
        (brighten, [], [brighten]),
        (Compose([]), [], None),
        (Compose([CROP, FLIP]), [CROP, FLIP], None),
        (Compose([CROP, FLIP, brighten, RESIZE]), [CROP, FLIP], [brighten, RESIZE]),
        (Compose([brighten, CROP]), [], [brighten, CROP]),
        (
            Compose([Compose([CROP, FLIP]), RESIZE, Compose([brighten, drop])]),
            [CROP, FLIP, RESIZE],
            [brighten, drop],
        ),
        (Compose([Compose([brighten]), CROP]), [], [brighten, CROP]),
    ],
)
def test_those_operations_that_come_first_are_part_of_decoding(
    transform: Any, leading: list[Any], rest: Any
) -> None:
    ops, others = split(transform)
    assert ops == leading
    left = list(others.transforms) if isinstance(others, Compose) else others and [others]
    assert left == rest


def test_each_operation_is_planned_for_what_the_one_before_leaves() -> None:
    ops = [Resize(8), RandomHorizontalFlip(0), CenterCrop((6, 4)), FLIP, Resize((3, 3), exact=True)]
    assert plan(ops, (40, 60), random.Random(0)) == [
        Scale(8, 12),
        Cut(1, 4, 6, 4),
        Mirror(),
        Scale(3, 3, True),
    ]


def test_what_cannot_be_called_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="a transform is called with a sample, which 'crop' cannot be"):
        Compose([CROP, "crop"])


def test_it_shows_what_it_holds_and_travels() -> None:
    made = Compose([CROP, Compose([FLIP])])
    assert repr(made) == "Compose([CenterCrop(size=(4, 4), exact=False), RandomHorizontalFlip(p=1)])"
    assert repr(pickle.loads(pickle.dumps(made))) == repr(made)


def test_an_operation_that_is_given_a_batch_says_where_it_belongs() -> None:
    batch = {"id": ["a", "b"], "image": torch.zeros(2, 3, 8, 8)}
    with pytest.raises(
        TransformError, match=r"CenterCrop takes a sample, and this is a batch: .*data set or the loader"
    ):
        CROP(batch)
