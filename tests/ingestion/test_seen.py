"""Repeated ids are found, whatever the batches they come in."""

from hypothesis import given
from hypothesis import strategies as st

from shardkit.ingestion.seen import SeenIds


@given(
    st.lists(st.lists(st.sampled_from("abcdefgh") | st.text(max_size=3), min_size=1, max_size=9), max_size=9)
)
def test_every_repeat_is_found_with_the_first_bearer_of_its_id(batches: list[list[str]]) -> None:
    seen = SeenIds()
    bearer: dict[str, int] = {}
    number = 0
    for batch in batches:
        expected = {}
        for position, record_id in enumerate(batch):
            if record_id in bearer:
                expected[position] = bearer[record_id]
            else:
                bearer[record_id] = number + position
        assert seen.add(batch, range(number, number + len(batch))) == expected
        number += len(batch)
