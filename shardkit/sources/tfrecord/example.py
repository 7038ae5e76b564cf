"""Parses ``tf.train.Example`` and ``tf.train.SequenceExample`` messages, without TensorFlow.

The messages are described here rather than by generated code; names are free, since only numbers and types stand on the
wire (https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/example.proto, feature.proto). An
Example is a SequenceExample without feature lists: both hold their features under number 1.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
except ImportError:
    descriptor_pb2 = None  # an extra: without it, only what needs it is refused

IS_INSTALLED = descriptor_pb2 is not None
_PACKAGE, _ROOT = "shardkit", "Example"
_KINDS = ("bytes_list", "float_list", "int64_list")


class ExampleFault(Exception):
    """Why bytes are no example, as one plain sentence."""


class Example:
    """The features of one message."""

    def __init__(self, data: bytes) -> None:
        """Parse a message.

        Raises:
            ExampleFault: The bytes are none.
        """
        example = _message_class()()
        try:
            example.ParseFromString(data)
        except message.DecodeError as error:
            raise ExampleFault("the record holds no tf.train.Example") from error
        self._features: Mapping[str, Any] = example.features.feature
        self._lists: Mapping[str, Any] = example.feature_lists.feature_list

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the features, and of the lists of features."""
        yield from self._features
        yield from self._lists

    def get(self, name: str) -> Any:
        """Return a feature: the value itself if it has one, a list if it has several or is a list of features.

        Values are bytes, int or float. None if there is no such feature, or it holds no kind of list.
        """
        if name in self._features:  # asking a map for what it lacks would add it
            values = _values(self._features[name])
            return values[0] if values is not None and len(values) == 1 else values
        if name in self._lists:
            steps = [_values(feature) for feature in self._lists[name].feature]
            return [step[0] if step is not None and len(step) == 1 else step for step in steps]
        return None


def _values(feature: Any) -> list[Any] | None:
    kind = feature.WhichOneof("kind")
    return None if kind is None else list(getattr(feature, kind).value)


def _field(name: str, number: int, kind: int | str, is_repeated: bool = False) -> Any:
    """Return a field of a message; `kind` is the number of a plain type, or the name of a message."""
    field = descriptor_pb2.FieldDescriptorProto(name=name, number=number)
    field.label = field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL
    if isinstance(kind, str):
        field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    else:
        field.type = kind
    return field


def _message(name: str, *described: Any) -> Any:
    return descriptor_pb2.DescriptorProto(name=name, field=described)


def _with_map(name: str, key: str, kind: str) -> Any:
    """Return a message whose one field, number 1, maps text to messages of a kind."""
    words = "".join(word.capitalize() for word in key.split("_"))
    text = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
    entry = _message(f"{words}Entry", _field("key", 1, text), _field("value", 2, kind))
    entry.options.map_entry = True
    described = _message(name, _field(key, 1, f"{name}.{entry.name}", is_repeated=True))
    described.nested_type.append(entry)
    return described


def _describe() -> Sequence[Any]:
    types = descriptor_pb2.FieldDescriptorProto
    plain = (types.TYPE_BYTES, types.TYPE_FLOAT, types.TYPE_INT64)
    lists = [
        _message(kind, _field("value", 1, number, is_repeated=True))
        for kind, number in zip(_KINDS, plain, strict=True)
    ]
    feature = _message(
        "Feature", *(_field(kind, number, kind) for number, kind in enumerate(_KINDS, start=1))
    )
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    return [
        *lists,
        feature,
        _message("Steps", _field("feature", 1, "Feature", is_repeated=True)),
        _with_map("Features", "feature", "Feature"),
        _with_map("FeatureLists", "feature_list", "Steps"),
        _message(_ROOT, _field("features", 1, "Features"), _field("feature_lists", 2, "FeatureLists")),
    ]


@cache
def _message_class() -> Any:  # Any: protobuf makes the class when it runs
    file = descriptor_pb2.FileDescriptorProto(
        name="shardkit_example.proto", package=_PACKAGE, syntax="proto3"
    )
    file.message_type.extend(_describe())
    pool = (
        descriptor_pool.DescriptorPool()
    )  # one of its own: TensorFlow's messages may stand in the common one
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{_ROOT}"))
