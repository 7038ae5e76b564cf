import pytest
from encoded import SEEDS

from shardkit.contract.field import Violation
from shardkit.contract.images.sniff import promised_format, sniff
from shardkit.contract.reasons import Reason

FORMAT_OF = {"jp2": "jpeg2000", "j2k": "jpeg2000", "apng": "png", "pgm": "ppm", "pbm": "ppm"}
TGA = bytes([0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 4, 0, 24, 0]) + bytes(48)


@pytest.mark.parametrize("name", SEEDS)
def test_each_format_is_known_by_its_bytes(name: str) -> None:
    kind = name.split("-")[0]
    assert sniff(SEEDS[name]) == FORMAT_OF.get(kind, kind)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", Reason.EMPTY),
        (b"\0", Reason.NOT_AN_IMAGE),
        (b"<!DOCTYPE html><html>404</html>", Reason.NOT_AN_IMAGE),
        (b'<svg xmlns="http://www.w3.org/2000/svg"/>', Reason.NOT_AN_IMAGE),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), Reason.NOT_AN_IMAGE),
        (b"BMW is a car maker, not a bitmap", Reason.NOT_AN_IMAGE),
        (b"PK\3\4" + bytes(60), Reason.NOT_AN_IMAGE),
        (b"%PDF-1.7\n", Reason.NOT_AN_IMAGE),
        (b"\xff\xd8", Reason.TRUNCATED),
        (b"\x89PNG\r\n", Reason.TRUNCATED),
        (b"RIFF\0\0\0\0", Reason.TRUNCATED),
        (b"\x89PNG\n\x1a\n\0\0\0\rIHDR" + bytes(17), Reason.BAD_HEADER),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", Reason.UNSUPPORTED),
        (b"PF\n1 1\n-1.0\n" + bytes(12), Reason.UNSUPPORTED),
        (b"\xff\xd8\xff\xf7" + bytes(20), Reason.UNSUPPORTED),
        (b"\0\0\1\0\1\0\x10\x10" + bytes(20), Reason.FORMAT_NOT_ALLOWED),
        (b"qoif" + bytes(20), Reason.FORMAT_NOT_ALLOWED),
        (b"\x89HDF\r\n\x1a\n" + bytes(20), Reason.FORMAT_NOT_ALLOWED),
        (b"8BPS\0\1" + bytes(20), Reason.FORMAT_NOT_ALLOWED),
        (TGA, Reason.FORMAT_NOT_ALLOWED),
        (bytes(130) + b"TRUEVISION-XFILE.\0", Reason.FORMAT_NOT_ALLOWED),
        (bytes(128) + b"DICM" + bytes(20), Reason.FORMAT_NOT_ALLOWED),
        (b"#define a_width 8\n#define a_height 8\n", Reason.FORMAT_NOT_ALLOWED),
    ],
)
def test_what_is_not_opened_gets_a_true_reason(data: bytes, reason: Reason) -> None:
    with pytest.raises(Violation) as caught:
        sniff(data)
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("name", "promised"),
    [("a.JPG", "jpeg"), ("x/y.tif", "tiff"), ("a.heic", "HEIF"), ("a.bin", None), ("a", None), ("png", None)],
)
def test_only_image_extensions_promise_a_format(name: str, promised: str | None) -> None:
    assert promised_format(name) == promised
