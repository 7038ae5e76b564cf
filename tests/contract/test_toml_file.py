from pathlib import Path

import pytest

from shardkit.contract import Contract, LabelField, TextField, render_toml, write_text
from shardkit.contract.toml_file import find_line
from shardkit.errors import ContractError, OutputError


def load(tmp_path: Path, text: str | bytes) -> Contract:
    path = tmp_path / "contract.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Contract.load(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '# photos\n\n[fields.image]\ntype = "image"\nmode = "RGB"\n\ngrayscale = "maybe"\n',
            'contract.toml line 7: [fields.image] grayscale = "maybe": allowed are "reject", "convert"',
        ),
        ('[fields.a]\ntype = "label"\nclases = ["x"]\n', 'line 3: [fields.a] clases = ["x"]: unknown key'),
        ('[fields.a]\n\n[fields.b]\ntype = "text"\n', 'line 1: [fields.a] no key "type"'),
        ('[fields]\na.type = "text"\nb.type = "txt"\n', 'line 3: [fields.b] type = "txt"'),
        ('[fields]\na = {type = "text"}\nb = {type = "txt"}\n', 'line 3: [fields.b] type = "txt"'),
        (
            '[fields.a]\ntype = "text"\n[recrods]\n',
            'line 3: [recrods]: unknown table; did you mean "records"?',
        ),
        ('[fields.a]\ntype = "text"\nmax_length = true\n', "line 3: [fields.a] max_length = true"),
        ('[fields."a b"]\ntype = "text"\n', "line 1: [fields.a b] field name 'a b' is not allowed"),
        ("[fields.a]\ntype = \n", "line 2: not valid TOML"),
        ('[fields.a]\ntype = "text"\ntype = "text"\n', "line 3: not valid TOML"),
        ('[fields.a]\ntype = "te', "line 2: not valid TOML"),
        (b'[fields.a]\n# caf\xe9\ntype = "text"\n', "line 2: not UTF-8"),
        ("x = " + "9" * 5000, "contract.toml: not valid TOML: Exceeds the limit"),
        ("", "contract.toml: the contract has no fields"),
        ("x = " + "[" * 100_000, "contract.toml: not a contract file: it is nested too deeply"),
    ],
)
def test_a_wrong_file_is_refused_naming_file_line_and_key(
    tmp_path: Path, text: str | bytes, expected: str
) -> None:
    with pytest.raises(ContractError) as caught:
        load(tmp_path, text)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_and_windows_line_ends_are_taken(tmp_path: Path) -> None:
    assert load(tmp_path, b'\xef\xbb\xbf[fields.a]\r\ntype = "text"\r\n') == Contract({"a": TextField()})


def test_a_file_that_is_not_there_is_a_contract_error(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"nothing\.toml: cannot read the contract file: No such file"):
        Contract.load(tmp_path / "nothing.toml")


def test_a_folder_in_place_of_the_file_is_a_contract_error(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="Is a directory"):
        Contract.load(tmp_path)


def test_saving_replaces_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "contract.toml"
    path.write_text("old")
    Contract({"label": LabelField(classes=("a", "é\n"))}).save(path)
    assert Contract.load(path) == Contract({"label": LabelField(classes=("a", "é\n"))})
    assert [entry.name for entry in tmp_path.iterdir()] == ["contract.toml"]


def test_saving_where_nothing_can_be_written_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No such file or directory"):
        Contract({"a": TextField()}).save(tmp_path / "no" / "contract.toml")


@pytest.mark.parametrize(
    ("name", "said"),
    [("file/contract.toml", "Not a directory"), ("", "busy|director"), ("folder", "director")],
)
def test_a_path_that_no_file_can_have_is_an_output_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match=f"cannot write the file: .*({said})"):
        write_text(name, "new")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]


def test_comments_stand_above_their_key() -> None:
    text = render_toml(
        Contract({"label": LabelField(num_classes=3), "text": TextField()}).to_dict(),
        {("fields", "text", "type"): "DECIDE: a default?", ("fields", "label", "num_classes"): "DECIDE: 3?"},
    )
    assert text.startswith('[fields.label]\ntype = "label"\n# DECIDE: 3?\nnum_classes = 3\n')
    assert '[fields.text]\n# DECIDE: a default?\ntype = "text"\n' in text


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (("fields",), None),
        (("fields", "a"), 2),
        (("fields", "a", "type"), 3),
        (("fields", "a", "no such key"), 2),
        (("fields", "a", "size"), 4),
        (("fields", "b", "type"), 7),
        (("records", "on_bad"), 9),
    ],
)
def test_the_line_of_a_key_is_its_own_or_its_tables(keys: tuple[str, ...], line: int | None) -> None:
    text = (
        '# top\n[fields.a]\ntype = "x"\n  size = [1,\n2]\n'
        '[fields."b"]\ntype = "y"\n[ records ] # rules\non_bad = ""'
    )
    assert find_line(text, keys) == line


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ("default = 2020-01-01", "default = 2020-01-01: a value of type date is neither"),
        ("default = 2020-01-01T10:00:00Z", "default = 2020-01-01T10:00:00+00:00: "),
        ("default = 07:32:00", "default = 07:32:00: "),
        ('default = {a = 1, "b c" = [true]}', 'default = {a = 1, "b c" = [true]}: '),
    ],
)
def test_a_wrong_value_is_shown_as_the_file_writes_it(tmp_path: Path, keys: str, shown: str) -> None:
    with pytest.raises(ContractError) as caught:
        load(tmp_path, f'[fields.a]\ntype = "text"\n{keys}\n')
    assert f"line 3: [fields.a] {shown}" in str(caught.value)
