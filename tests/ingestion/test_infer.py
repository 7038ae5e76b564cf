"""What infer sees, proposes and leaves to a person."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shardkit import Contract, Inference, infer, ingest
from shardkit.contract import ArrayField, FileContent, ImageField, LabelField, ScalarField, TextField
from shardkit.errors import IngestError, SourceError
from shardkit.ingestion.decisions import Decision
from shardkit.ingestion.observation import Observation, Range, delivered_size


def decided(inference: Inference) -> dict[str, int]:
    return {f"{each.field}.{each.key}": each.count for each in inference.decisions}


def troubles(inference: Inference) -> dict[str, tuple[int, int, str]]:
    return {each.reason.value: (each.count, each.looked_at, each.example.id) for each in inference.troubles}


def save(folder: Path, name: str, image: Image.Image, **options: object) -> None:
    folder.mkdir(exist_ok=True)
    image.save(folder / name, **options)  # type: ignore[arg-type]


def table(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_clean_photos_leave_nothing_to_decide_and_ingest_as_proposed(raw: Path, tmp_path: Path) -> None:
    inference = infer(raw)
    assert (inference.total, inference.sampled) == (12, 12)
    assert inference.contract == Contract(
        {"image": ImageField(), "label": LabelField(classes=("cat", "dog"))}
    )
    assert inference.decisions == ()
    assert inference.troubles == ()
    assert "#" not in inference.to_toml()
    image, label = inference.observations["image"], inference.observations["label"]
    assert (image.kinds, image.formats, image.shapes) == ({"RGB": 12}, {"jpeg": 12}, {(30, 40): 12})
    assert label.kinds == {"cat": 6, "dog": 6}
    inference.save(tmp_path / "c.toml")
    assert Contract.load(tmp_path / "c.toml") == inference.contract
    assert ingest(raw, tmp_path / "out", tmp_path / "c.toml", workers=0).stored == 12


def test_each_conversion_that_a_default_refuses_is_left_to_a_person(
    tmp_path: Path, photo: Image.Image
) -> None:
    small = photo.crop((0, 0, 20, 10))
    folder = tmp_path / "raw"
    save(folder, "rgb.png", small)
    save(folder, "gray.png", small.convert("L"))
    save(folder, "alpha.png", small.convert("RGBA"))
    save(folder, "cmyk.jpg", small.convert("CMYK"))
    save(folder, "deep.png", Image.fromarray(np.full((10, 20), 999, np.uint16)))
    save(folder, "moves.gif", small, save_all=True, append_images=[small.rotate(180)])
    save(folder, "wide.png", Image.new("RGB", (9000, 2)))
    exif = Image.Exif()
    exif[0x0112] = 6
    save(folder, "turned.jpg", small, exif=exif)
    inference = infer(folder)
    assert decided(inference) == {
        "image.grayscale": 2,
        "image.alpha": 1,
        "image.cmyk": 1,
        "image.depth16": 1,
        "image.animated": 1,
        "image.orientation": 1,
        "image.max_size": 1,
    }
    assert inference.troubles == ()
    assert inference.observations["image"].shapes == {(10, 20): 6, (20, 10): 1, (2, 9000): 1}
    lines = inference.to_toml().splitlines()
    above = {line.split(" = ")[0]: lines[at - 1] for at, line in enumerate(lines) if " = " in line}
    for key, words in {
        "grayscale": '2 of 8 records looked at are gray, so are rejected as it stands; "convert"',
        "alpha": '"drop" leaves it out, "composite"',
        "cmyk": '"convert" turns them into RGB',
        "depth16": "over 8 bits",
        "animated": '"first" keeps the first',
        "orientation": 'or "ignore", or "reject"',
        "max_size": "up to 2 high and 9000 wide",
    }.items():
        assert above[key].startswith("# DECIDE: ")
        assert words in above[key], key
    assert inference.contract == Contract({"image": ImageField()})


def test_the_proposal_rejects_what_it_left_to_a_person_until_one_decides(
    tmp_path: Path, photo: Image.Image
) -> None:
    save(tmp_path / "raw", "gray.png", photo.convert("L").crop((0, 0, 9, 9)))
    save(tmp_path / "raw", "rgb.png", photo.crop((0, 0, 9, 9)))
    contract = tmp_path / "c.toml"
    infer(tmp_path / "raw").save(contract)
    with pytest.raises(IngestError, match="grayscale"):
        ingest(tmp_path / "raw", tmp_path / "out", contract, workers=0)
    contract.write_text(contract.read_text().replace('grayscale = "reject"', 'grayscale = "convert"'))
    assert ingest(tmp_path / "raw", tmp_path / "out", contract, workers=0).stored == 2


def test_where_every_image_is_gray_another_mode_is_offered(tmp_path: Path, photo: Image.Image) -> None:
    save(tmp_path / "raw", "gray.png", photo.convert("L").crop((0, 0, 9, 9)))
    inference = infer(tmp_path / "raw")
    assert decided(inference) == {"image.mode": 1, "image.grayscale": 1}
    assert '"L" delivers their one channel\nmode = "RGB"' in inference.to_toml()


def test_what_the_decoder_remarked_on_is_left_to_a_person(tmp_path: Path, photo: Image.Image) -> None:
    save(tmp_path / "raw", "cut.jpg", photo.crop((0, 0, 40, 30)))
    path = tmp_path / "raw" / "cut.jpg"
    path.write_bytes(path.read_bytes()[:-2])  # the end mark
    inference = infer(tmp_path / "raw")
    assert decided(inference) == {"image.warnings": 1}
    assert inference.observations["image"].warnings == {"recovered": 1}


def test_faults_that_no_policy_mends_are_told_with_an_example_and_a_bomb_is_a_limit_to_decide(
    raw: Path,
) -> None:
    (raw / "cat" / "empty.jpg").write_bytes(b"")
    (raw / "cat" / "page.jpg").write_bytes(b"<html>404</html>")
    (raw / "dog" / "page.jpg").write_bytes(b"<html>404</html>")
    Image.new("1", (20_000, 20_000)).save(raw / "dog" / "bomb.png")
    inference = infer(raw)
    assert troubles(inference) == {
        "not-an-image": (2, 16, "cat/page.jpg"),
        "empty": (1, 16, "cat/empty.jpg"),
        "too-many-pixels": (1, 16, "dog/bomb.png"),
    }
    assert decided(inference) == {"image.max_pixels": 1}
    assert inference.observations["image"].values == 12


def test_values_of_a_table_are_told_by_range_length_and_what_is_missing(tmp_path: Path) -> None:
    path = table(tmp_path, "id,label,age,name\na,cat,7,Ann\nb,dog,,Bo\nc,cat,-3,\nd,dog,5,Dan\n")
    inference = infer(path)
    age, name = inference.observations["age"], inference.observations["name"]
    assert (age.numbers, age.values, age.missing) == (Range(-3, 7), 3, 1)
    assert (name.lengths, name.missing) == (Range(0, 3), 0)
    assert inference.observations["label"].values == 4
    assert troubles(inference) == {"missing-field": (1, 4, "b")}
    assert decided(inference) == {"age.type": 1}
    assert "default = VALUE" in inference.to_toml()
    assert list(inference.lines()) == [
        "4 records, 4 looked at",
        "  label      classes: 2 of 2 seen: cat (2), dog (2)",
        "  age        values: -3 to 7",
        "  age        missing: 1",
        "  name       lengths: 0 to 3",
        "  trouble    missing-field: 1 of 4, such as 'b': there is no value for 'age'",
        "  decide     age.type: 1 of 4 records looked at have no value, so are rejected; default = VALUE "
        "would give them one",
    ]


def test_not_a_number_is_left_to_a_person(tmp_path: Path) -> None:
    inference = infer(table(tmp_path, "id,score\na,0.5\nb,nan\nc,2.5\n"))
    score = inference.observations["score"]
    assert (score.numbers, score.not_finite) == (Range(0.5, 2.5), 1)
    assert decided(inference) == {"score.finite": 1}
    assert "hold NaN or infinity, so are rejected as it stands; false lets them in\nfinite = true" in (
        inference.to_toml()
    )


@pytest.mark.parametrize(
    ("labels", "is_hinted"), [((1, 2, 3), True), ((0, 1, 2), False), ((1, 0), False), ((5,), True)]
)
def test_labels_without_a_zero_may_count_from_one(
    tmp_path: Path, labels: tuple[int, ...], is_hinted: bool
) -> None:
    rows = "".join(f"{number},{label}\n" for number, label in enumerate(labels))
    inference = infer(table(tmp_path, f"id,label\n{rows}"))
    assert (decided(inference) == {"label.num_classes": len(labels)}) is is_hinted
    assert ("labels may count from 1" in inference.to_toml()) is is_hinted


def test_classes_that_look_alike_or_stand_for_nothing_are_left_to_a_person(tmp_path: Path) -> None:
    inference = infer(table(tmp_path, "id,label\n1,cat\n2,Cat\n3,dog\n4,n/a\n5,cat \n6,None\n"))
    (missing, alike) = inference.decisions
    assert missing == Decision(
        "label", "classes", 2, "do these classes stand for a missing label? 'None', 'n/a'"
    )
    assert alike.sentence == "these classes differ only by case or spaces: 'Cat', 'cat', 'cat '"
    (comment,) = [line for line in inference.to_toml().splitlines() if line.startswith("#")]
    assert missing.sentence in comment
    assert alike.sentence in comment


def test_a_class_folder_without_files_is_told(raw: Path) -> None:
    (raw / "emu").mkdir()
    lines = list(infer(raw).lines())
    assert "  label      classes: 2 of 3 seen: cat (6), dog (6)" in lines
    assert "  label      not seen: emu" in lines


def test_long_lists_of_classes_are_cut_to_one_line(tmp_path: Path) -> None:
    rows = "".join(f"{number},{number % 40 if number else 79}\n" for number in range(400))
    lines = list(infer(table(tmp_path, f"id,label\n{rows}")).lines())
    assert lines[1] == (
        "  label      classes: 41 of 80 seen: 1 (10), 2 (10), 3 (10), 4 (10), 5 (10), 6 (10), 7 (10), 8 (10), "
        "9 (10), 10 (10), 11 (10), 12 (10) and 29 more"
    )
    assert lines[2].startswith("  label      rarest: 79 (1), 0 (9), 39 (10)")
    assert lines[3] == ("  label      not seen: 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51 and 27 more")


def test_only_a_sample_of_many_records_is_decoded_and_the_extremes_are_in_it(
    tmp_path: Path, photo: Image.Image
) -> None:
    folder = tmp_path / "raw"
    save(folder, "0000.png", photo.crop((0, 0, 4, 4)))
    for number in range(1, 800):
        (folder / f"{number:04}.png").hardlink_to(folder / "0000.png")
    (folder / "0401.png").unlink()
    save(folder, "0401.png", photo.crop((0, 0, 300, 200)))
    (folder / "0613.png").unlink()
    (folder / "0613.png").write_bytes(b"")
    inference = infer(folder, samples=64)
    assert inference.total == 800
    assert 48 <= inference.sampled <= 80
    assert inference.observations["image"].shapes[200, 300] == 1
    assert troubles(inference) == {"empty": (1, inference.sampled, "0613.png")}
    assert next(inference.lines()).endswith("looked at: evenly spread, smallest, largest and last ones")


def test_ids_and_rows_at_fault_are_counted_over_the_whole_table(tmp_path: Path) -> None:
    rows = [f"{number},1" for number in range(2000)]
    rows[777] = "5,1"
    rows[1111] = "x"
    rows[1501] = " ,1"
    inference = infer(table(tmp_path, "id,age\n" + "\n".join(rows) + "\n"), samples=32)
    assert inference.sampled < 100
    assert {reason: found[:2] for reason, found in troubles(inference).items()} == {
        "duplicate-id": (1, 2000),
        "bad-row": (1, 2000),
        "bad-id": (1, 2000),
    }


def test_a_source_without_records_or_a_proposal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no rows"):
        infer(table(tmp_path, "id,label\n"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="holds no files"):
        infer(tmp_path / "empty")


def test_names_in_what_is_told_and_written_never_break_a_line(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    rows = [{"id": "a\nb", "label": "x\ny"}, {"id": "a\nb", "label": "X\ny"}, {"id": "c", "label": "none"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    inference = infer(path)
    toml = inference.to_toml()
    (tmp_path / "c.toml").write_text(toml)
    assert Contract.load(tmp_path / "c.toml").fields["label"] == LabelField(classes=("X\ny", "none", "x\ny"))
    assert [line for line in toml.splitlines() if line.startswith("#")] == [
        "# DECIDE: do these classes stand for a missing label? 'none'; these classes differ only by case or "
        "spaces: 'X\\ny', 'x\\ny'"
    ]
    (trouble,) = [line for line in inference.lines() if "trouble" in line]
    assert "such as 'a\\nb'" in trouble


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "tiff"])
def test_the_size_is_that_of_the_picture_as_delivered(
    tmp_path: Path, photo: Image.Image, kind: str, orientation: int
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    save(tmp_path, f"a.{kind}", photo.crop((0, 0, 30, 20)), exif=exif)
    spec = ImageField()
    checked = spec.check((tmp_path / f"a.{kind}").read_bytes())
    assert delivered_size(spec, checked) == spec.decode(checked.payload).shape[:2]
    assert delivered_size(spec, checked) == ((30, 20) if orientation >= 5 else (20, 30))


def observed(spec: ImageField | ScalarField | ArrayField | TextField, *values: object) -> Observation:
    seen = Observation()
    for value in values:
        seen.add(spec, value, spec.check(value))
    return seen


def test_arrays_are_told_by_shape_and_range() -> None:
    spec = ArrayField("float32", (-1, 2), finite=False)
    seen = observed(spec, np.array([[1, np.nan]], "f4"), np.array([[2, 3], [-4, np.inf]], "f4"))
    assert seen.shapes == {(1, 2): 1, (2, 2): 1}
    assert seen.extreme_shapes() == ((1, 2), (2, 2))
    assert (seen.numbers, seen.not_finite) == (Range(-4.0, 3.0), 2)


def test_bools_and_arrays_without_a_finite_element_have_a_range_or_none() -> None:
    assert observed(ScalarField("bool"), True, False).numbers == Range(False, True)
    assert observed(ArrayField("float32", (1,), finite=False), np.array([np.nan], "f4")).numbers == Range()


def test_pixels_that_come_as_an_array_have_no_format() -> None:
    seen = observed(ImageField(), np.zeros((5, 6, 3), np.uint8), FileContent(b"P6 2 1 255 abcdef", "a.ppm"))
    assert seen.formats == {"array": 1, "ppm": 1}
    assert seen.shapes == {(5, 6): 1, (1, 2): 1}


def test_a_column_that_is_left_out_and_numbers_kept_as_text_are_told_and_noted_in_the_file(
    tmp_path: Path,
) -> None:
    text = "id,my col,serial,age\na,1,18446744073709551616,5\nb,2,7,\n"
    inference = infer(table(tmp_path, text))
    assert inference.contract.fields["serial"] == TextField()
    told = [line for line in inference.lines() if line.startswith("  column")]
    assert told == [
        "  column     'my col': left out: field name 'my col' is not allowed: use a letter, then letters, digits or "
        "'_', 64 characters at most, and none of checksum, id, is_pad; rename it",
        "  column     'serial': text, since no type of numbers holds all of its whole numbers exactly",
    ]
    lines = inference.to_toml().splitlines()
    assert lines[0] == "# left out: 'my col'; rename these columns to have them"
    at = lines.index("[fields.serial]")
    assert lines[at + 1] == "# text, since no type of numbers holds all of its whole numbers exactly"
    (tmp_path / "c.toml").write_text(inference.to_toml())
    assert Contract.load(tmp_path / "c.toml") == inference.contract


def test_of_very_many_columns_that_are_left_out_the_first_are_told(tmp_path: Path) -> None:
    names = [f"c {number}" for number in range(60)]
    text = f"id,x,{','.join(names)}\na,1,{','.join('1' for _ in names)}\n"
    inference = infer(table(tmp_path, text))
    told = [line for line in inference.lines() if line.startswith("  column")]
    assert len(told) == 51
    assert told[-1] == "  column     of 10 more there are like remarks"
    assert (
        inference.to_toml().splitlines()[0].endswith("'c 11' and 48 more; rename these columns to have them")
    )
