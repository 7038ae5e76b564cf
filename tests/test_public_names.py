"""The public names are there, documented and typed."""

import inspect

import pytest

import shardkit


@pytest.mark.parametrize("name", shardkit.__all__)
def test_a_public_name_is_documented_with_its_members(name: str) -> None:
    value = getattr(shardkit, name)
    assert value.__doc__
    if inspect.isclass(value):
        undocumented = [
            member
            for member, found in vars(value).items()
            if not member.startswith("_")
            and (inspect.isfunction(found) or isinstance(found, property | classmethod | staticmethod))
            and not inspect.getdoc(getattr(value, member, found))
        ]
        assert undocumented == []


def test_unknown_names_are_attribute_errors_and_dir_lists_the_public_ones() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        shardkit.no_such_name  # noqa: B018 - the access is the test
    assert set(shardkit.__all__) <= set(dir(shardkit))
